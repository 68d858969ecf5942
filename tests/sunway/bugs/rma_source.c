#include <crts.h>
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local double edge[4];
__thread_local crts_rply_t got, sent, came;

void kernel(args_t* from) {
  CRTS_dma_get(&args, from, sizeof args);
  got = sent = came = 0;
  CRTS_ssync_array();
  CRTS_dma_iget(part, args.in + _PEN * kPart, sizeof part, &got);
#ifdef RIGHT
  CRTS_dma_wait_value(&got, 1);
#endif
  CRTS_rma_iput(part, &sent, sizeof edge, (_PEN + 1) % kSlaves, edge, /* BUG: missing-wait */
                &came);
  CRTS_dma_wait_value(&got, 1);
  CRTS_rma_wait_value(&sent, 1);
  CRTS_rma_wait_value(&came, 1);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  CRTS_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
