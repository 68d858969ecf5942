#include <athread.h>
#include <stdio.h>

long sum[64];
extern void SLAVE_FUN(reduce)(long*);

int main(void) {
  int wrong = 0;
  athread_init();
  for (int i = 0; i < 2; ++i) {
    athread_spawn(reduce, sum);
    athread_join();
  }
  for (int i = 0; i < 64; ++i) wrong += sum[i] != 64 * 65 / 2;
  printf("reduce: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
