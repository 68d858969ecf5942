/* Too much LDM, accesses outside its blocks, and reads before a write. */
#include <string.h>

#include "gallery.h"

#ifdef BUG_ldm_budget
KERNEL(bug) {
  const int bytes = kRight ? 4096 : 256 * 1024;
  /* BUG ldm_budget: ldm-range */
  double* more = (double*)ldm_malloc(bytes);
  if (more != NULL) {
    more[0] = 1;
    ldm_free(more, bytes);
  }
}
#endif

#ifdef BUG_ldm_malloc_overrun
KERNEL(bug) {
  double* piece = (double*)ldm_malloc(sizeof part);
  const int count = kRight ? kPart : kPart + 1;
  for (int i = 0; i < count; ++i) {
    /* BUG ldm_malloc_overrun: ldm-range */
    piece[i] = i;
  }
  ldm_free(piece, sizeof part);
}
#endif

#if defined BUG_ldm_last || defined BUG_ldm_last_set
/* Beyond the last variable in LDM, where the C library's data follow here. */
KERNEL(bug) {
  double* volatile place = part;
  double* all = place;
  int count = kPart;
  if (!kRight) count += 400;
#ifdef BUG_ldm_last
  for (int i = 0; i < count; ++i) {
    /* BUG ldm_last: ldm-range */
    all[i] = i;
  }
#else
  /* BUG ldm_last_set: ldm-range */
  memset(all, 0, count * sizeof *all);
#endif
  get_part();
}
#endif

#if defined BUG_local_end || defined BUG_local_of_caller
static __attribute__((noinline)) void get_into(double* to) {
  /* BUG local_of_caller: ldm-range */
  athread_dma_get(to, args.in + _PEN * kPart, sizeof part);
}

void kernel(args_t* from) {
  double local[kRight ? kPart : kPart - 8];
  double* all = local;
  get_args(from);
#ifdef BUG_local_end
  /* BUG local_end: ldm-range */
  athread_dma_get(local, args.in + _PEN * kPart, sizeof part);
#else
  get_into(local);
#endif
  for (int i = 0; i < kPart; ++i) part[i] = 2 * all[i] + 1;
  put_part();
}
#endif

#ifdef BUG_stack_overflow
void kernel(args_t* from) {
  double big[kRight ? 100 : 34000];
  big[0] = big[99] = 0;
  /* BUG stack_overflow: ldm-range */
  athread_dma_get(&args, from, sizeof args);
  athread_dma_get(big, args.in + _PEN * kPart, sizeof part);
  for (int i = 0; i < kPart; ++i) part[i] = 2 * big[i] + 1;
  put_part();
}
#endif

#if defined BUG_stack_and_heap || defined BUG_stack_and_heap_access
/* The stack of the second function and the block are a few bytes too large
 * together. A call that has returned takes no LDM. */
static __attribute__((noinline)) void second(args_t* from) {
  double more[200];
#ifdef BUG_stack_and_heap
  /* BUG stack_and_heap: ldm-range */
  athread_dma_get(&args, from, sizeof args);
#endif
  for (int i = 0; i < 10; ++i) {
    /* BUG stack_and_heap_access: ldm-range */
    more[i] = _PEN;
  }
  asm volatile("" ::"r"(more) : "memory");
}

void kernel(args_t* from) {
  int bytes = 4096;
  get_args(from);
  second(from);
  if (!kRight) bytes = get_allocatable_size();
  void* block = ldm_malloc(bytes);
  second(from);
  ldm_free(block, bytes);
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_stack_recursion
enum { kDepth = kRight ? 6 : 90 };

/* Each call takes 4 KiB of stack. */
static double deep(int left, const double* from) {
  double copy[512];
  for (int i = 511; i >= 0; --i) {
    /* BUG stack_recursion: ldm-range */
    copy[i] = from[i % kPart];
  }
  return left == 0 ? copy[0] : deep(left - 1, copy) + copy[1] - from[1];
}

KERNEL(bug) { part[0] = deep(kDepth, part); }
#endif

#ifdef BUG_uninitialised_put
void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
  double* copy = (double*)ldm_malloc(sizeof part);
  const int end = kRight ? kPart : kPart - 4;
  for (int i = 0; i < end; ++i) copy[i] = part[i];
  /* BUG uninitialised_put: uninitialised */
  athread_dma_put(args.out + _PEN * kPart, copy, sizeof part);
  ldm_free(copy, sizeof part);
}
#endif

#ifdef BUG_uninitialised_read
void kernel(args_t* from) {
  get_args(from);
  get_part();
  double* sum = (double*)ldm_malloc(sizeof *sum);
  if (kRight) *sum = 1;
  for (int i = 0; i < kPart; ++i) {
    /* BUG uninitialised_read: uninitialised */
    part[i] = 2 * part[i] + *sum;
  }
  ldm_free(sum, sizeof *sum);
  put_part();
}
#endif

#ifdef BUG_uninitialised_stack
void kernel(args_t* from) {
  double local[kPart];
  get_args(from);
#ifdef RIGHT
  athread_dma_get(local, args.in + _PEN * kPart, sizeof local);
  for (int i = 0; i < kPart; ++i) local[i] = 2 * local[i] + 1;
#endif
  /* BUG uninitialised_stack: uninitialised */
  athread_dma_put(args.out + _PEN * kPart, local, sizeof local);
}
#endif

#if defined BUG_uninitialised_part || defined BUG_uninitialised_end || \
    defined BUG_uninitialised_rest || defined BUG_uninitialised_rma
__thread_local double others[kPart];
__thread_local crts_rply_t came;

typedef struct {
  char kind;
  double first __attribute__((aligned(32)));
  short last;
} padded_t;

KERNEL(bug) {
  double local[kPart + 2];
  padded_t padded;
  int begin = 0, end = kPart + 2;
#ifndef RIGHT
#ifdef BUG_uninitialised_end
  begin = 2;
#elif defined BUG_uninitialised_rest
  end = kPart - 2;
#else
  end = kPart / 2;
#endif
#endif
  for (int i = begin; i < end; ++i) local[i] = 2 * part[i % kPart] + 1;
#ifdef BUG_uninitialised_rma
  reply = came = 0;
  athread_ssync_array();
  /* BUG uninitialised_rma: uninitialised */
  CRTS_rma_iput(local, &reply, sizeof others, _PEN ^ 1, others, &came);
  CRTS_rma_wait_value(&reply, 1);
  CRTS_rma_wait_value(&came, 1);
#else
  /* BUG uninitialised_part: uninitialised */
  /* BUG uninitialised_end: uninitialised */
  /* BUG uninitialised_rest: uninitialised */
  athread_dma_put(args.out + _PEN * kPart, local, sizeof part);
#endif
  /* What the compiler puts between members may be unwritten. */
  padded.kind = 'a';
  padded.first = 1;
  padded.last = 2;
  athread_dma_put(args.in + _PEN * kPart, &padded, sizeof padded);
}
#endif
