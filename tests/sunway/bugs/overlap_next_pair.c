/* overlap_next_round with meetings of two.
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
    const long other = flag[_PEN ^ 1];
    athread_ssync_peer(_PEN ^ 1);
    flag[_PEN] = other + 1; /* BUG: overlap */
#ifdef RIGHT
    athread_ssync_peer(_PEN ^ 1);
#endif
  }
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
