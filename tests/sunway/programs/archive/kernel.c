#include <slave.h>
#include <string.h>

extern int histogram[];
int helper(int);

void count(unsigned char* text) {
  int bytes = 512;
  unsigned char* part = (unsigned char*)ldm_malloc(bytes);
  int* bins = (int*)ldm_malloc(32 * sizeof(int));
  memset(bins, 0, 32 * sizeof(int));
  athread_dma_get(part, text + _PEN * bytes, bytes);
  for (int i = 0; i < bytes; ++i) bins[helper(part[i])]++;
  athread_dma_put(histogram + _PEN * 32, bins, 32 * sizeof(int));
  ldm_free(bins, 32 * sizeof(int));
  ldm_free(part, bytes);
}
