#include <slave.h>
#include <stdio.h>
static __thread_local int line[32];
__thread_local double big[1000];
static int __attribute__((noinline)) sum(int n) {
  volatile int part[100];
  part[n] = n;
  return n == 0 ? 0 : part[n] + sum(n - 1);
}
void work(int* numbers) {
  volatile char text[2000];
  text[_PEN] = 1;
  line[1] = sum(_PEN) + text[_PEN];
  if (line[1] < 0) printf("%g\n", big[_PEN]), faaw(numbers, 1);
  athread_dma_put(numbers + 32 * _PEN, line, sizeof line);
}
