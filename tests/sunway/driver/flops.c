#include <simd.h>
#include <slave.h>
static __thread_local double x[100], y[100];
static __thread_local double many[800] __attribute__((aligned(64)));
static __thread_local int line[32];
void work(int* numbers) {
#ifdef FUSED
  doublev8 sum = 0, next;
  for (int i = 0; i < 100; ++i) {
    simd_load(next, many + 8 * i);
    sum = simd_vmad(next, next, sum);
  }
  line[1] = sum[3];
#else
  for (int i = 0; i < 100; ++i) x[i] = i, y[i] = _PEN;
  for (int i = 0; i < 100; ++i) y[i] = 2 * x[i] + y[i];
  line[1] = (int)y[99];
#endif
  athread_dma_put(numbers + 32 * _PEN, line, sizeof line);
}
