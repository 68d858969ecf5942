#include <athread.h>
#include <stdio.h>

int in[64 * 64], out[64 * 64];
extern SLAVE_FUN(copy)(void*);

int main(void) {
  int wrong = 0;
  for (int i = 0; i < 64 * 64; ++i) in[i] = i;
  athread_init();
  athread_spawn(copy, 0);
  athread_join();
  for (int i = 0; i < 64 * 64; ++i) wrong += out[i] != -i;
  printf("descriptors: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
