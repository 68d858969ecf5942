#include <slave.h>
#include <string.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local double zeros[4];
__thread_local crts_rply_t reply;
int all_zero[kSlaves];

/* The C library's memcmp reads what may not be there yet. */
void kernel(args_t* from) {
  int is_zero;
  athread_dma_get(&args, from, sizeof args);
  reply = 0;
  athread_dma_iget(part, args.in + _PEN * kPart, sizeof part, &reply);
#ifdef RIGHT
  athread_dma_wait_value(&reply, 1);
#endif
  is_zero = memcmp(part, zeros, sizeof *zeros) == 0;
  athread_dma_wait_value(&reply, 1);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
  all_zero[_PEN] = is_zero; /* BUG: schedule */
}
