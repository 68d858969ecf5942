/* Kernels for bugs of the master. */
#include "gallery.h"

extern volatile int ended;

#ifdef BUG_args_read
/* The slaves read the master's struct directly. */
void kernel(args_t* args) {
  /* BUG args_read: args-changed */
  double* in = args->in;
  athread_dma_get(part, in + _PEN * kPart, sizeof part);
  compute();
  athread_dma_put(args->out + _PEN * kPart, part, sizeof part);
}
#elif defined BUG_array_stored || defined BUG_array_read
void kernel(args_t* array) {
  double* mine = (double*)array + _PEN * kPart;
  athread_dma_get(part, mine, sizeof part);
  compute();
  /* BUG array_stored: overlap */
  /* BUG array_read: overlap */
  athread_dma_put(mine, part, sizeof part);
}
#elif defined BUG_unset_block || defined BUG_unset_direct
void kernel(args_t* from) {
  get_args(from);
  get_part();
  const double* first = args.in + _PEN * kPart;
  for (int i = 0; i < kPart; ++i) {
#ifdef BUG_unset_block
    /* BUG unset_block: uninitialised */
    part[i] = 2 * part[i] + 1;
#else
    /* BUG unset_direct: uninitialised */
    part[i] = 2 * first[i] + 1;
#endif
  }
  put_part();
}
#else
/* A kernel without a bug of its own. */
void kernel(args_t* from) {
  /* BUG args_changed: args-changed */
  athread_dma_get(&args, from, sizeof args);
  /* BUG freed_memory: main-range */
  /* BUG master_stores: overlap */
  /* BUG single_stores: overlap */
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
  compute();
  /* BUG main_range_heap: main-range */
  /* BUG main_range_local: main-range */
  /* BUG master_reads: overlap */
  /* BUG master_copies: overlap */
  /* BUG master_reads_late: overlap */
  /* BUG single_reads: overlap */
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
#if defined BUG_master_loads_ldm || defined BUG_master_stores_ldm || \
    defined BUG_master_copies_ldm
  args.flag[_PEN] = (long)part;
#endif
#ifdef BUG_master_reads_late
  faaw(&ended, 1);
#endif
}
#endif
