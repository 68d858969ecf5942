#include <slave.h>
static __thread_local double x[100], y[100];
static __thread_local int line[32];
void work(int* numbers) {
  for (int i = 0; i < 100; ++i) x[i] = i, y[i] = _PEN;
  for (int i = 0; i < 100; ++i) y[i] = 2 * x[i] + y[i];
  line[1] = (int)y[99];
  athread_dma_put(numbers + 32 * _PEN, line, sizeof line);
}
