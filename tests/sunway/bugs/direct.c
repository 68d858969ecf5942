/* Loads and stores beyond variables and blocks, in main memory and in LDM. */
#include <stdlib.h>

#include "gallery.h"

/* A number that the compiler does not know. */
static volatile int unknown = 0;

#ifdef BUG_direct_null
double numbers[2];
void kernel(args_t* from) {
  get_args(from);
  get_part();
  double* other = numbers;
#ifndef RIGHT
  if (unknown == 0) other = NULL;
#endif
  /* BUG direct_null: main-range */
  part[0] += 0 * other[1];
  compute();
  put_part();
}
#endif

#if defined BUG_direct_block_end || defined BUG_direct_block_begin || \
    defined BUG_direct_large_block || defined BUG_direct_freed
#ifdef BUG_direct_large_block
enum { kBlock = 33000 };
#else
enum { kBlock = 9 };
#endif
void kernel(args_t* from) {
  volatile double* block = (double*)malloc(kBlock * sizeof(double));
  int at = kBlock - 1;
  get_args(from);
  get_part();
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
  compute();
  put_part();
}
#endif

#ifdef BUG_direct_array_end
double table[10];
void kernel(args_t* from) {
  get_args(from);
  get_part();
#ifdef RIGHT
  int at = 9 + unknown;
#else
  int at = 10 + unknown;
#endif
  /* BUG direct_array_end: main-range */
  part[0] += 0 * table[at];
  compute();
  put_part();
}
#endif

#ifdef BUG_ldm_array_end
void kernel(args_t* from) {
  get_args(from);
  get_part();
#ifdef RIGHT
  int at = unknown;
#else
  int at = -1 - unknown;
#endif
  double was = part[0];
  /* BUG ldm_array_end: ldm-range */
  part[at] = was;
  compute();
  put_part();
}
#endif

#ifdef BUG_ldm_pointer_end
__thread_local char letters[13] __attribute__((aligned(16)));
void kernel(args_t* from) {
  char* at = letters;
  get_args(from);
  get_part();
#ifdef RIGHT
  at += 12 + unknown;
#else
  at += 13 + unknown;
#endif
  /* BUG ldm_pointer_end: ldm-range */
  *at = 'x';
  compute();
  put_part();
}
#endif

#ifdef BUG_other_ldm
double* volatile shown[kSlaves];
void kernel(args_t* from) {
  get_args(from);
  get_part();
  shown[_PEN] = part;
  athread_ssync_array();
#ifdef RIGHT
  double* other = shown[_PEN];
#else
  double* other = shown[(_PEN + 1) % kSlaves];
#endif
  /* BUG other_ldm: ldm-range */
  double first = other[0];
  athread_ssync_array();
  part[0] += 0 * first;
  compute();
  put_part();
}
#endif

#ifdef BUG_big_local
#ifdef RIGHT
enum { kBig = 100 };
#else
enum { kBig = 200000 };
#endif
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
#ifdef RIGHT
  const int count = kPart;
#else
  const int count = kPart / 2;
#endif
  for (int i = 0; i < count; ++i) ones[i] = part[i] + 1;
  for (int i = 0; i < kPart; ++i) {
    /* BUG uninitialised_local: uninitialised */
    part[i] += ones[i];
  }
  put_part();
  athread_dma_get(ones, args.in, sizeof ones);
}
#endif
