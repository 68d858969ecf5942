#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local double zeros[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

void kernel(args_t* from) {
  double* own;
  athread_dma_get(&args, from, sizeof args);
  own = args.out + _PEN * kPart;
  reply = 0;
  athread_dma_iput(own, zeros, sizeof zeros, &reply);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
#ifdef RIGHT
  athread_dma_wait_value(&reply, 1);
#endif
  athread_dma_iput(own, part, sizeof part, &reply); /* BUG: reuse-in-flight */
  athread_dma_wait_value(&reply, 2);
}
