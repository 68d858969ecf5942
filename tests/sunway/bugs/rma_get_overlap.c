#include <crts.h>
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local double shown, seen;
__thread_local crts_rply_t mine, other;
double copies[kSlaves];

/* Slave 1 reads the LDM of slave 0 while slave 2 writes it. */
void kernel(args_t* from) {
  CRTS_dma_get(&args, from, sizeof args);
  CRTS_dma_get(part, args.in + _PEN * kPart, sizeof part);
  mine = other = 0;
  shown = part[0];
  CRTS_ssync_array();
  if (_PEN == 1) {
    CRTS_rma_iget(&seen, &mine, sizeof seen, 0, &shown, &other);
    CRTS_rma_wait_value(&mine, 1);
    copies[1] = 0 * seen;
  }
#ifdef RIGHT
  CRTS_ssync_array();
#endif
  if (_PEN == 2) {
    CRTS_rma_iput(&shown, &mine, sizeof shown, 0, &shown, &other); /* BUG: overlap */
    CRTS_rma_wait_value(&mine, 1);
  }
  if (_PEN == 0) CRTS_rma_wait_value(&other, 2);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  CRTS_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
