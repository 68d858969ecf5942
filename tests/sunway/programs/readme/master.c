#include <athread.h>
#include <stdio.h>

double numbers[64 * 128] __attribute__((aligned(128)));
extern void SLAVE_FUN(twice)(double*);

int main(void) {
  for (int i = 0; i < 64 * 128; ++i) numbers[i] = i;
  athread_init();
  athread_spawn(twice, numbers);
  athread_join();
  printf("%g\n", numbers[8191]);
  return 0;
}
