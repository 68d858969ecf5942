#include "dma.h"
#include "slave.h"

static int in[64 * 64], out[64 * 64];
__thread_local int part[64];

void work(int* bad) {
  volatile unsigned long reply = 0;
  dma_desc get, put;
  for (int i = 0; i < 64; ++i) in[_PEN * 64 + i] = i;
  dma_set_op(&get, DMA_GET);
  dma_set_mode(&get, PE_MODE);
  dma_set_size(&get, sizeof part);
  dma_set_bsize(&get, 0);
  dma_set_stepsize(&get, 0);
  dma_set_reply(&get, &reply);
  put = get;
  dma_set_op(&put, DMA_PUT);
  dma(get, in + _PEN * 64, part);
  dma_wait(&reply, 1);
  for (int i = 0; i < 64; ++i) part[i] = -part[i];
  reply = 0;
  dma(put, out + _PEN * 64, part);
  dma_wait(&reply, 1);
  for (int i = 0; i < 64; ++i) bad[_PEN] += out[_PEN * 64 + i] != -i;
}
