#include <slave.h>
#include <stdlib.h>
extern volatile int started;
__thread_local double part[128];
void work(double* memory) {
  started = 1;
  for (int i = 0;; ++i) {
    double* at = memory + (_PEN * 8191 + i * 511) % ((1 << 20) - 128);
    athread_dma_get(part, at, sizeof part);
    at[0] = i;
    if (_PEN == 0 && memory == NULL) at[1] = i;
#ifdef JOIN
    if (i == 100) exit(JOIN);
#endif
  }
}
