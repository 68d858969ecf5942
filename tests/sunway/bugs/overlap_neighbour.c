#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
extern long flag[kSlaves];
long sums[kSlaves];

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
  flag[_PEN] = _PEN + 1; /* BUG: overlap */
#ifdef RIGHT
  athread_ssync_array();
#endif
  sums[_PEN] = flag[(_PEN + 1) % kSlaves];
}
