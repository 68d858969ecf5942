#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  compute();
  reply = 0;
  CRTS_dma_iput(args.out + _PEN * kPart, part, sizeof part, &reply);
#ifdef RIGHT
  CRTS_dma_wait_value(&reply, 1);
#endif
  part[3] = 0; /* BUG: source-modified */
#ifndef RIGHT
  CRTS_dma_wait_value(&reply, 1);
#endif
}
