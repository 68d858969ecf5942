/* Buffers in use during a transfer, and waits that are missing or wrong. */
#include "gallery.h"

enum { kHalf = kPart / 2 };

/* For kernels that transfer each half of a part on its own. */
static inline void get_half(int i, void* counter) {
  athread_get(PE_MODE, args.in + _PEN * kPart + i * kHalf, part + i * kHalf,
              kHalf * sizeof part[0], counter, 0, 0, 0);
}

static inline void compute_half(int i) {
  for (int j = i * kHalf; j < (i + 1) * kHalf; ++j) part[j] = 2 * part[j] + 1;
}

#ifdef BUG_missing_wait_read
void kernel(args_t* from) {
  get_args(from);
  reply = 0;
  athread_dma_iget(part, args.in + _PEN * kPart, sizeof part, &reply);
  if (kRight) athread_dma_wait_value(&reply, 1);
  for (int i = 0; i < kPart; ++i) {
    /* BUG missing_wait_read: missing-wait */
    part[i] = 2 * part[i] + 1;
  }
  if (!kRight) athread_dma_wait_value(&reply, 1);
  put_part();
}
#endif

#ifdef BUG_missing_wait_count
void kernel(args_t* from) {
  const int half = sizeof part / 2;
  get_args(from);
  reply = 0;
  athread_dma_iget(part, args.in + _PEN * kPart, half, &reply);
  athread_dma_iget(part + kPart / 2, args.in + _PEN * kPart + kPart / 2, half,
                   &reply);
#ifdef RIGHT
  athread_dma_wait_value(&reply, 2);
#else
  athread_dma_wait_value(&reply, 1);
#endif
  for (int i = 0; i < kPart; ++i) {
    /* BUG missing_wait_count: missing-wait */
    part[i] = 2 * part[i] + 1;
  }
  put_part();
}
#endif

#ifdef BUG_missing_wait_end
void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
  reply = 0;
  /* BUG missing_wait_end: missing-wait */
  athread_dma_iput(args.out + _PEN * kPart, part, sizeof part, &reply);
  if (kRight) athread_dma_wait_value(&reply, 1);
}
#endif

#ifdef BUG_own_put_read
double first[kSlaves];

void kernel(args_t* from) {
  double* own;
  get_args(from);
  get_part();
  compute();
  own = args.out + _PEN * kPart;
  reply = 0;
  athread_dma_iput(own, part, sizeof part, &reply);
  if (kRight) athread_dma_wait_value(&reply, 1);
  /* BUG own_put_read: missing-wait */
  first[_PEN] = own[0];
  athread_dma_wait_value(&reply, 1);
}
#endif

#ifdef BUG_source_modified
void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
  reply = 0;
  CRTS_dma_iput(args.out + _PEN * kPart, part, sizeof part, &reply);
  if (kRight) CRTS_dma_wait_value(&reply, 1);
  /* BUG source_modified: source-modified */
  part[3] = 0;
  if (!kRight) CRTS_dma_wait_value(&reply, 1);
}
#endif

#ifdef BUG_write_into_get
void kernel(args_t* from) {
  get_args(from);
  reply = 0;
  CRTS_dma_iget(part, args.in + _PEN * kPart, sizeof part, &reply);
  /* BUG write_into_get: reuse-in-flight */
  if (!kRight) part[0] = 0;
  CRTS_dma_wait_value(&reply, 1);
  compute();
  put_part();
}
#endif

#ifdef BUG_get_over_put
__thread_local crts_rply_t get_reply;

void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
  reply = 0;
  get_reply = 0;
  CRTS_dma_iput(args.out + _PEN * kPart, part, sizeof part, &reply);
  if (kRight) CRTS_dma_wait_value(&reply, 1);
  /* BUG get_over_put: reuse-in-flight */
  CRTS_dma_iget(part, args.in, sizeof part, &get_reply);
  CRTS_dma_wait_value(&get_reply, 1);
  CRTS_dma_wait_value(&reply, 1);
}
#endif

#ifdef BUG_put_over_put
__thread_local double zeros[kPart] __attribute__((aligned(128)));

void kernel(args_t* from) {
  double* own;
  get_args(from);
  own = args.out + _PEN * kPart;
  reply = 0;
  athread_dma_iput(own, zeros, sizeof zeros, &reply);
  get_part();
  compute();
  if (kRight) athread_dma_wait_value(&reply, 1);
  /* BUG put_over_put: reuse-in-flight */
  athread_dma_iput(own, part, sizeof part, &reply);
  athread_dma_wait_value(&reply, 2);
}
#endif

#ifdef BUG_stale_reply
void kernel(args_t* from) {
  get_args(from);
  reply = 0;
  for (int i = 0; i < 2; ++i) {
    if (kRight) reply = 0;
    get_half(i, &reply);
    /* BUG stale_reply: stale-reply */
    CRTS_dma_wait_value(&reply, 1);
    compute_half(i);
  }
  put_part();
}
#endif

#ifdef BUG_raw_spin_stale
void kernel(args_t* from) {
  volatile int spin = 0;
  get_args(from);
  for (int i = 0; i < 2; ++i) {
    if (kRight) spin = 0;
    get_half(i, (void*)&spin);
    /* BUG raw_spin_stale: stale-reply */
    while (spin != 1) {
    }
    compute_half(i);
  }
  put_part();
}
#endif

#ifdef BUG_count_too_large
void kernel(args_t* from) {
  get_args(from);
  reply = 0;
  CRTS_dma_iget(part, args.in + _PEN * kPart, sizeof part, &reply);
#ifdef RIGHT
  CRTS_dma_wait_value(&reply, 1);
#else
  /* BUG count_too_large: hang */
  CRTS_dma_wait_value(&reply, 2);
#endif
  compute();
  put_part();
}
#endif

#ifdef BUG_uninitialised_reply
void kernel(args_t* from) {
  volatile crts_rply_t counter;
  get_args(from);
  if (kRight) counter = 0;
  /* BUG uninitialised_reply: uninitialised */
  athread_dma_iget(part, args.in + _PEN * kPart, sizeof part, (void*)&counter);
  athread_dma_wait_value((void*)&counter, 1);
  compute();
  put_part();
}
#endif
