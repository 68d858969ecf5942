#include <slave.h>

__thread_local double part[128] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

void twice(double* numbers) {
  reply = 0;
  athread_dma_iget(part, numbers + _PEN * 128, sizeof part, &reply);
  athread_dma_wait_value(&reply, 1);
  for (int i = 0; i < 128; ++i) part[i] *= 2;
  athread_dma_put(numbers + _PEN * 128, part, sizeof part);
}
