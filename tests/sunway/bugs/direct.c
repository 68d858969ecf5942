/* Loads and stores beyond variables and blocks, in main memory and in LDM. */
#include <stdlib.h>

#include "gallery.h"

/* A number that the compiler does not know. */
static volatile int unknown = 0;

#ifdef BUG_direct_null
double numbers[2];
KERNEL(bug) {
  double* other = numbers;
  if (!kRight && unknown == 0) other = NULL;
  /* BUG direct_null: main-range */
  part[0] += 0 * other[1];
}
#endif

#if defined BUG_direct_block_end || defined BUG_direct_block_begin || \
    defined BUG_direct_large_block || defined BUG_direct_freed
#ifdef BUG_direct_large_block
enum { kBlock = 33000 };
#else
enum { kBlock = 9 };
#endif
KERNEL(bug) {
  volatile double* block = (double*)malloc(kBlock * sizeof(double));
  int at = kBlock - 1;
#ifndef RIGHT
#ifdef BUG_direct_block_begin
  at = -1 + unknown;
#elif defined BUG_direct_freed
  free((void*)block);
#else
  at = kBlock + unknown;
#endif
#endif
  /* BUG direct_block_end: main-range */
  /* BUG direct_block_begin: main-range */
  /* BUG direct_large_block: main-range */
  /* BUG direct_freed: main-range */
  block[at] = 1;
#if defined RIGHT || defined BUG_direct_large_block
  free((void*)block);
#endif
}
#endif

#ifdef BUG_direct_array_end
double table[10];
KERNEL(bug) {
  int at = kRight ? 9 + unknown : 10 + unknown;
  /* BUG direct_array_end: main-range */
  part[0] += 0 * table[at];
}
#endif

#ifdef BUG_ldm_array_end
KERNEL(bug) {
  int at = kRight ? unknown : -1 - unknown;
  double was = part[0];
  /* BUG ldm_array_end: ldm-range */
  part[at] = was;
}
#endif

#ifdef BUG_ldm_pointer_end
__thread_local char letters[13] __attribute__((aligned(16)));
KERNEL(bug) {
  char* at = letters;
  at += (kRight ? 12 : 13) + unknown;
  /* BUG ldm_pointer_end: ldm-range */
  *at = 'x';
}
#endif

#ifdef BUG_other_ldm
double* volatile shown[kSlaves];
KERNEL(bug) {
  shown[_PEN] = part;
  athread_ssync_array();
  double* other = shown[(_PEN + (kRight ? 0 : 1)) % kSlaves];
  /* BUG other_ldm: ldm-range */
  double first = other[0];
  athread_ssync_array();
  part[0] += 0 * first;
}
#endif

#ifdef BUG_big_local
enum { kBig = kRight ? 100 : 200000 };
/* BUG big_local: ldm-range */
void kernel(args_t* from) {
  volatile double big[kBig];
  big[0] = 1;
  big[kBig - 1] = 1;
  get_args(from);
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_uninitialised_local
void kernel(args_t* from) {
  double ones[kPart];
  get_args(from);
  get_part();
  const int count = kRight ? kPart : kPart / 2;
  for (int i = 0; i < count; ++i) ones[i] = part[i] + 1;
  for (int i = 0; i < kPart; ++i) {
    /* BUG uninitialised_local: uninitialised */
    part[i] += ones[i];
  }
  put_part();
  athread_dma_get(ones, args.in, sizeof ones);
}
#endif
