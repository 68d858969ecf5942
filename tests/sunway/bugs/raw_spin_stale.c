#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

void kernel(args_t* from) {
  const int half = kPart / 2;
  volatile int spin = 0;
  athread_dma_get(&args, from, sizeof args);
  for (int i = 0; i < 2; ++i) {
#ifdef RIGHT
    spin = 0;
#endif
    athread_get(PE_MODE, args.in + _PEN * kPart + i * half, part + i * half,
                half * sizeof part[0], (void*)&spin, 0, 0, 0);
    while (spin != 1) { /* BUG: stale-reply */
    }
    for (int j = 0; j < half; ++j) {
      part[i * half + j] = 2 * part[i * half + j] + 1;
    }
  }
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
