/* A slave that is late leaves a meeting when a fast one is at the next already.
 * RUN: SWAMP_CHECK_SCHEDULES=0 */
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

extern long flag[kSlaves];

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  for (int i = 0; i < 4; ++i) {
    const long left = flag[(_PEN + kSlaves - 1) % kSlaves];
    athread_ssync_array();
    flag[_PEN] = left + 1; /* BUG: overlap */
#ifdef RIGHT
    athread_ssync_array();
#endif
  }
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
