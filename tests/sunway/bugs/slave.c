/* The slave of the bugs that only their NAME.master.c has. */
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  compute();
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
