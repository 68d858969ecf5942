#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

void kernel(args_t* from) {
  const int half = sizeof part / 2;
  athread_dma_get(&args, from, sizeof args);
  reply = 0;
  athread_dma_iget(part, args.in + _PEN * kPart, half, &reply);
  athread_dma_iget(part + kPart / 2, args.in + _PEN * kPart + kPart / 2, half,
                   &reply);
#ifdef RIGHT
  athread_dma_wait_value(&reply, 2);
#else
  athread_dma_wait_value(&reply, 1);
#endif
  for (int i = 0; i < kPart; ++i) {
    part[i] = 2 * part[i] + 1; /* BUG: missing-wait */
  }
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
