#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

#include <simd.h>

__thread_local double lanes[16] __attribute__((aligned(64)));

void kernel(args_t* from) {
  doublev8 v;
  athread_dma_get(&args, from, sizeof args);
  for (int i = 0; i < 16; ++i) lanes[i] = i;
#ifdef RIGHT
  simd_load(v, lanes + 8);
#else
  simd_load(v, lanes + 1); /* BUG: misaligned */
#endif
  lanes[0] = v[0];
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  compute();
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
