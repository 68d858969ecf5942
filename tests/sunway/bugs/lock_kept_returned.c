/* A slave returns with a lock that the master waits for. */
#include <crts.h>
#include <slave.h>

#include "common.h"

extern volatile long word;

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
  if (_PEN == 0) {
    athread_lock(&word);
#ifndef RIGHT
    CRTS_ssync_master_array();
    return;
#endif
    athread_unlock(&word);
  }
  CRTS_ssync_master_array();
}
