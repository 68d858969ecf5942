#include <slave.h>
__thread_local int line[32];
void work(int* numbers) {
  int* heap = ldm_malloc(4000);
  volatile int stack[500];
  for (int i = 499; i >= 0; --i) stack[i] = i;
  for (int i = 0; i < 32; ++i) line[i] = stack[i] * _PEN;
  athread_dma_put(numbers + 32 * _PEN, line, sizeof line);
  ldm_free(heap, 4000);
}
