#include <simd.h>
#include <slave.h>

#define memory_barrier() asm volatile("memb")

typedef struct {
  float *from, *to;
  int rows, columns;
} job;

__thread_kernel("ldm") floatv4 factor = 3.0;
__thread_local_fix dma_desc get;
__thread_local volatile long put_reply;

inline void put(void* ldm, void* main, int bytes) {
  put_reply = 0;
  athread_put(PE_MODE, ldm, main, bytes, (void*)&put_reply, 0, 0);
  while (put_reply != 1)
    ;
}

void copy(job* main_job) {
  volatile int reply = 0, column;
  float buffer[512] __attribute__((aligned(32)));
  floatv4 v, w;
  job j;
  int i, row;
  unsigned long time;

  /* One slave gets the job for all slaves, onto their stacks. */
  athread_syn(ARRAY_SCOPE, 0xffff);
  if (_MYID == 0) {
    athread_get(BCAST_MODE, main_job, &j, sizeof(j), (void*)&reply, 0xff, 0, 0);
    dma_wait(&reply, 1);
  }
  athread_syn(ARRAY_SCOPE, 0xffff);
  asm volatile("rcsr %0, 1" : "=r"(row));
  asm volatile("rcsr %0, 2" : "=r"(column));
  asm volatile("memb\n\trcsr %0, 4" : "=r"(time));
  if (row * 8 + column != athread_get_id(-1) || time == 0) return;
  if (_MYID >= j.rows) return;

  reply = 0;
  dma_set_op(&get, DMA_GET);
  dma_set_mode(&get, PE_MODE);
  dma_set_size(&get, j.columns * sizeof(float));
  dma_set_bsize(&get, 0);
  dma_set_stepsize(&get, 0);
  dma_set_reply(&get, &reply);
  dma(get, (long)(j.from + _MYID * j.columns), (long)buffer);
  dma_wait(&reply, 1);
  memory_barrier();
  for (i = 0; i < j.columns; i += 4) {
    simd_load(v, buffer + i);
    w = 0;
    w += factor * v;
    simd_store(w, buffer + i);
  }
  put(buffer, j.to + _MYID * j.columns, j.columns * sizeof(float));
}
