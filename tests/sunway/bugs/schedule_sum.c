#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__uncached long lock_word;
double total;
double sums[kSlaves];

/* The lock keeps the sum whole, not its order: its last digits change. */
static void add_up(double sum) {
#ifdef RIGHT
  sums[_PEN] = sum;
  athread_ssync_array();
  if (_PEN == 0) {
    for (int i = 0; i < kSlaves; ++i) total += sums[i];
  }
#else
  athread_lock(&lock_word);
  total += sum; /* BUG: schedule */
  athread_unlock(&lock_word);
#endif
}

void kernel(args_t* from) {
  double sum = 0;
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) {
    part[i] = 2 * part[i] + 1;
    sum += 1 / part[i];
  }
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
  add_up(sum);
}
