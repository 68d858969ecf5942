#include <crts.h>
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local long word[8], seen[8];
__thread_local crts_rply_t reply;

/* Slave 63 writes what slave 0 gets for its row. */
void kernel(args_t* from) {
  CRTS_dma_get(&args, from, sizeof args);
  CRTS_dma_get(part, args.in + _PEN * kPart, sizeof part);
  reply = 0;
  for (int i = 0; i < 8; ++i) word[i] = 0;
  CRTS_ssync_array();
  if (_PEN == 0) CRTS_dma_row_ibcast(seen, args.flag, sizeof seen, &reply);
  if (_PEN < 8) CRTS_dma_wait_value(&reply, 1);
#ifdef RIGHT
  CRTS_ssync_array();
  if (_PEN == 63) CRTS_dma_put(args.flag, word, sizeof word);
#endif
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  CRTS_dma_put(args.out + _PEN * kPart, part, sizeof part);
#ifndef RIGHT
  if (_PEN == 63) CRTS_dma_put(args.flag, word, sizeof word); /* BUG: overlap */
#endif
}
