/* The master of programs that have none: their work() counts what is wrong. */
#include <athread.h>
#include <stdio.h>

int bad[64];
extern void SLAVE_FUN(work)(int*);

int main(void) {
  int wrong = 0;
  athread_init();
  for (int i = 0; i < 2; ++i) {
    athread_spawn(work, bad);
    athread_join();
  }
  for (int i = 0; i < 64; ++i) wrong += bad[i];
  printf("%d wrong\n", wrong);
  athread_halt();
  return 0;
}
