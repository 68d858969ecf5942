/* A lock that nobody gives back while others wait for it. */
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

extern long flag[kSlaves];

volatile long word; /* in main memory */

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_lock(&word); /* BUG: hang */
  flag[0] += 1;
#ifndef RIGHT
  if (_PEN != 0)
#endif
    athread_unlock(&word);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
