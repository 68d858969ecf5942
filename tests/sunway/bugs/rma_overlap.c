#include <crts.h>
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local double mine, of[2];
__thread_local crts_rply_t sent, came;
double sums[kSlaves];

/* Slave 0 hears of both, but which of the two it finds is open. */
void kernel(args_t* from) {
  int place = _PEN - 1;
  CRTS_dma_get(&args, from, sizeof args);
  CRTS_dma_get(part, args.in + _PEN * kPart, sizeof part);
  sent = came = 0;
  mine = part[0];
#ifndef RIGHT
  place = 0;
#endif
  CRTS_ssync_array();
  if (_PEN == 1 || _PEN == 2) {
    CRTS_rma_iput(&mine, &sent, sizeof mine, 0, &of[place], &came); /* BUG: overlap */
    CRTS_rma_wait_value(&sent, 1);
  }
  if (_PEN == 0) {
    CRTS_rma_wait_value(&came, 2);
    sums[0] = of[0] + of[1];
  }
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  CRTS_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
