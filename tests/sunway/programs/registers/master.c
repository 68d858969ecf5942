/* Register communication, as a matrix product shares its panels. */
#include <athread.h>
#include <stdio.h>

extern SLAVE_FUN(share)();

double panels[64][4] __attribute__((aligned(128)));
long sums[64];

int main() {
  int i, k, wrong = 0;
  for (i = 0; i < 64; ++i)
    for (k = 0; k < 4; ++k) panels[i][k] = 4 * i + k;
  athread_init();
  athread_spawn(share, 0);
  athread_join();
  for (i = 0; i < 64; ++i) wrong += sums[i] != sums[0];
  printf("%d wrong, sum %ld\n", wrong, sums[0]);
  return 0;
}
