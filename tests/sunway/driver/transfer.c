#include <slave.h>
typedef struct {
  char* memory;
  int bytes, put;
} job_t;
static __thread_local char buffer[65536] __attribute__((aligned(128)));
void transfer(job_t* job) {
  /* Each part begins at a line, so that all slaves have the same alignment. */
  char* mine = job->memory + (long)_PEN * ((job->bytes + 127) / 128 * 128);
  if (job->put) {
    athread_dma_put(mine, buffer, job->bytes);
  } else {
    athread_dma_get(buffer, mine, job->bytes);
  }
}
