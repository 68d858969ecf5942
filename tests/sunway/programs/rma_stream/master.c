/* Several messages of one slave go into one buffer, which its receiver reads only
 * after the last of them. */
#include <athread.h>
#include <stdio.h>

extern void SLAVE_FUN(stream)(void*);

double sums[64];

int main(void) {
  int wrong = 0;
  athread_init();
  athread_spawn(stream, 0);
  athread_join();
  for (int i = 1; i < 64; i += 2) wrong += sums[i] != 8 * (4 + 5 + 6 + 9 + 19);
  printf("rma_stream: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
