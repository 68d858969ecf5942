#include <slave.h>
__thread_local int line[32];
static int local(int times) {
  int product = times * _PEN;
  athread_dma_get(line, (int*)0 + 0 * times, 0 * times);
  return product;
}
void work(int* numbers) {
  for (int i = 0; i < 32; ++i) line[i] = i * _PEN;
  athread_dma_put(numbers + 32 * _PEN, line, sizeof line);
}
