#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

__thread_local double other;

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  reply = 0;
  static __thread_local crts_rply_t remote;
  athread_ssync_array();
  athread_rma_iget(&other, &reply, 8, (_PEN + 1) % kSlaves, &part[0], &remote);
#ifdef RIGHT
  athread_rma_wait_value(&reply, 1);
#endif
  double mine = other; /* BUG: missing-wait */
  athread_rma_wait_value(&reply, 1);
  athread_ssync_array();
  part[0] += mine - other;
  compute();
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
