/* A slave computes for a long time while others send into its LDM. */
#include <athread.h>
#include <stdio.h>

extern void SLAVE_FUN(work)(void*);

long sums[64];

int main(void) {
  int wrong = 0;
  athread_init();
  athread_set_num_threads(64);
  athread_spawn(work, 0);
  athread_join();
  for (int i = 0; i < 64; ++i) wrong += sums[i] != (i % 8 == 0 ? 2520 : i);
  printf("late receiver: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
