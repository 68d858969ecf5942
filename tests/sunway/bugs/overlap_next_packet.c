/* overlap_next_reply with packets of register communication.
 * RUN: SWAMP_CHECK_SCHEDULES=0 SWAMP_CHECK_SEED=1 */
#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));

#define PUTR(value, to) \
  asm volatile("putr %0,%1\n" ::"r"(value), "r"(to) : "memory")
#define GETR(value) asm volatile("getr %0\n" : "=r"(value)::"memory")

extern long flag[kSlaves];

void kernel(args_t* from) {
  long packet = 1;
  athread_dma_get(&args, from, sizeof args);
  if (_PEN % 2 == 0) {
    PUTR(packet, _PEN % 8 + 1);
    flag[_PEN] = 1; /* BUG: overlap */
    PUTR(packet, _PEN % 8 + 1);
  } else {
    GETR(packet);
#ifdef RIGHT
    GETR(packet);
#endif
    flag[_PEN] = flag[_PEN - 1];
#ifndef RIGHT
    GETR(packet);
#endif
  }
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
