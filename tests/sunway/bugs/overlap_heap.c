#include <slave.h>
#include <stdlib.h>

#include "common.h"

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
long* volatile shared;

/* What one slave allocates two others write. */
void kernel(args_t* from) {
  int place = _PEN;
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
#ifndef RIGHT
  place = 0;
#endif
  if (_PEN == 0) shared = malloc(kSlaves * sizeof *shared);
  athread_ssync_array();
  if (_PEN == 3 || _PEN == 4) shared[place] = _PEN; /* BUG: overlap */
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
