#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

void kernel(args_t* from) {
  double local[kPart];
  athread_dma_get(&args, from, sizeof args);
#ifdef RIGHT
  athread_dma_get(local, args.in + _PEN * kPart, sizeof local);
  for (int i = 0; i < kPart; ++i) local[i] = 2 * local[i] + 1;
#endif
  athread_dma_put(args.out + _PEN * kPart, local, sizeof local); /* BUG: uninitialised */
}
