/* A slave waits for the sum of two words of main memory.
 * RUN: SWAMP_CHECK_TIMEOUT=3 */
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

extern long flag[kSlaves];

volatile long words[2]; /* in main memory */

void kernel(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
  if (_PEN == 0) {
    while (words[0] + words[1] < 5) { /* BUG: hang */
    }
  } else if (_PEN == 1) {
    words[0] = 2;
#ifdef RIGHT
    words[1] = 3;
#else
    words[1] = 2;
#endif
  }
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
