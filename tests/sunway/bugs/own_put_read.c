#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;
double first[kSlaves];

void kernel(args_t* from) {
  double* own;
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  own = args.out + _PEN * kPart;
  reply = 0;
  athread_dma_iput(own, part, sizeof part, &reply);
#ifdef RIGHT
  athread_dma_wait_value(&reply, 1);
#endif
  first[_PEN] = own[0]; /* BUG: missing-wait */
  athread_dma_wait_value(&reply, 1);
}
