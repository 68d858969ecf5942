#include <crts.h>
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local double first;
__thread_local crts_rply_t sent, came;

/* What slave 63 sends may be there before the others have reset the word. */
void kernel(args_t* from) {
  CRTS_dma_get(&args, from, sizeof args);
  CRTS_dma_get(part, args.in + _PEN * kPart, sizeof part);
#ifdef RIGHT
  sent = came = 0;
#endif
  CRTS_ssync_array();
#ifndef RIGHT
  sent = came = 0;
#endif
  first = part[0];
  if (_PEN == 63) CRTS_rma_ibcast(&first, &first, &sent, sizeof first, &came);
  CRTS_rma_wait_value(&came, 1); /* BUG: hang */
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  CRTS_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
