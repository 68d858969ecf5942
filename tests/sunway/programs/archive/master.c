#include <athread.h>
#include <stdio.h>

int histogram[64 * 32];
unsigned char text[64 * 512];
extern void SLAVE_FUN(count)(void*);
int helper(int x) { return x + 1; } /* the slaves have another helper() */

int main(void) {
  int sum = 0;
  for (int i = 0; i < sizeof text; ++i) text[i] = i * 7 % 32;
  athread_init();
  athread_spawn(count, text);
  athread_join();
  for (int i = 0; i < 64 * 32; ++i) sum += histogram[i];
  printf("archive: %d %d\n", sum, helper(1));
  athread_halt();
  return 0;
}
