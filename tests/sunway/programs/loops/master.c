/* Inner loops, of which swcc compiles two copies for check mode. */
#include <athread.h>
#include <stdio.h>

extern SLAVE_FUN(work)(double*);

static double numbers[64 * 256] __attribute__((aligned(128)));

int main(void) {
  double sum = 0;
  for (int i = 0; i < 64 * 256; ++i) numbers[i] = i % 13;
  athread_init();
  for (int round = 0; round < 2; ++round) {
    athread_spawn(work, numbers);
    athread_join();
  }
  for (int i = 0; i < 64 * 256; ++i) sum += numbers[i] * (i % 7);
  printf("loops: %.17g\n", sum);
  return 0;
}
