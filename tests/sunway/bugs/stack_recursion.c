#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
#ifdef RIGHT
enum { kDepth = 6 };
#else
enum { kDepth = 90 };
#endif

/* 4 KiB a call. */
static double deep(int left, const double* from) {
  double copy[512];
  for (int i = 511; i >= 0; --i) {
    copy[i] = from[i % kPart]; /* BUG: ldm-range */
  }
  return left == 0 ? copy[0] : deep(left - 1, copy) + copy[1] - from[1];
}

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  part[0] = deep(kDepth, part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
