/* A receiver that waits for the first message knows nothing of what came before
 * the second, even if that is there, too.
 * RUN: SWAMP_CHECK_SCHEDULES=0 SWAMP_CHECK_SEED=1 */
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local long mine[2], theirs[2];
__thread_local crts_rply_t sent, came;

extern long flag[kSlaves];

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  sent = came = 0;
  athread_ssync_array();
  if (_PEN % 2 == 0) {
    athread_rma_iput(&mine[0], &sent, sizeof(long), _PEN + 1, &theirs[0],
                     &came);
    flag[_PEN] = 1; /* BUG: overlap */
    athread_rma_iput(&mine[1], &sent, sizeof(long), _PEN + 1, &theirs[1],
                     &came);
    athread_rma_wait_value(&sent, 2);
  } else {
#ifdef RIGHT
    athread_rma_wait_value(&came, 2);
#else
    athread_rma_wait_value(&came, 1);
#endif
    flag[_PEN] = flag[_PEN - 1];
    athread_rma_wait_value(&came, 2);
  }
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
