#include <slave.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
int next;
double first[kSlaves];

void kernel(args_t* from) {
  int place;
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
#ifdef RIGHT
  place = _PEN;
#else
  place = faaw(&next, 1);
#endif
  athread_dma_put(&first[place], part, sizeof *part); /* BUG: schedule */
}
