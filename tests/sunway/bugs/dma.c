/* Transfers that the machine refuses, or that access the wrong memory. */
#include <simd.h>

#include "gallery.h"

#ifdef BUG_misaligned
__thread_local char bytes[256] __attribute__((aligned(128)));

KERNEL(bug) {
  /* BUG misaligned: misaligned */
  athread_dma_get(kRight ? bytes : bytes + 2, args.flag, 64);
}
#endif

#ifdef BUG_simd_misaligned
__thread_local double lanes[16] __attribute__((aligned(64)));

KERNEL(bug) {
  doublev8 v;
  for (int i = 0; i < 16; ++i) lanes[i] = i;
  double* from = lanes + (kRight ? 8 : 1);
  /* BUG simd_misaligned: misaligned */
  simd_load(v, from);
  lanes[0] = v[0];
}
#endif

#ifdef BUG_zero_length
KERNEL(bug) {
  reply = 0;
#ifndef RIGHT
  /* BUG zero_length: bad-length */
  CRTS_dma_iget(part, args.in, 0, &reply);
  CRTS_dma_wait_value(&reply, 1);
#endif
}
#endif

#ifdef BUG_negative_length
__thread_local int left = -8;

KERNEL(bug) {
  /* BUG negative_length: bad-length */
  if (!kRight) athread_dma_get(part, args.in, left);
}
#endif

#ifdef BUG_oversize
KERNEL(bug) {
  int length = kRight ? sizeof part : 1 << 20;
  reply = 0;
  /* BUG oversize: bad-length */
  CRTS_dma_iget(part, args.in + _PEN * kPart, length, &reply);
  CRTS_dma_wait_value(&reply, 1);
}
#endif

#ifdef BUG_reply_not_ldm
#ifdef RIGHT
static __thread_local crts_rply_t word;
#else
static crts_rply_t word;
#endif

KERNEL(bug) {
  word = 0;
  /* BUG reply_not_ldm: reply-not-ldm */
  CRTS_dma_iget(part, args.in + _PEN * kPart, sizeof part, &word);
  CRTS_dma_wait_value(&word, 1);
}
#endif

#ifdef BUG_buffer_in_main
#ifdef RIGHT
static __thread_local double buffer[kPart];
#else
static double buffer[kPart];
#endif

void kernel(args_t* from) {
  get_args(from);
  /* BUG buffer_in_main: ldm-range */
  athread_dma_get(buffer, args.in + _PEN * kPart, sizeof buffer);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * buffer[i] + 1;
  put_part();
}
#endif

#ifdef BUG_ldm_range_static
__thread_local double small[kPart / 2];

KERNEL(bug) {
  /* BUG ldm_range_static: ldm-range */
  athread_dma_get(small, args.in, kRight ? sizeof small : sizeof part);
}
#endif

#ifdef BUG_main_range_static
void kernel(args_t* from) {
  get_args(from);
  int at = _PEN * kPart;
  if (!kRight && _PEN == kSlaves - 1) at += 2;
  /* BUG main_range_static: main-range */
  athread_dma_get(part, args.in + at, sizeof part);
  compute();
  put_part();
}
#endif
