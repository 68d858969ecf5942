/* A gallery of bugs. Each kernel turns `in` into `out` = 2 * in + 1 and has one
 * bug unless RIGHT is defined (kRight in expressions). The macro BUG_NAME
 * selects the kernel, or the main() in master.c, of the bug NAME.
 *
 * A comment "BUG NAME: CATEGORY" means that check mode reports this category at
 * the line below it, or below other such comments. "RUN NAME:
 * VARIABLE=VALUE..." sets variables for the run with the bug. */
#ifndef GALLERY_H
#define GALLERY_H

enum { kSlaves = 64, kPart = 64, kCount = kSlaves * kPart };
#ifdef RIGHT
enum { kRight = 1 };
#else
enum { kRight = 0 };
#endif

typedef struct {
  double* in;  /* kCount numbers */
  double* out; /* kCount numbers */
  long* flag;  /* kSlaves numbers */
} args_t;

#ifndef MASTER

#include <crts.h>
#include <slave.h>

extern long flag[kSlaves];

__thread_local args_t args;
__thread_local double part[kPart] __attribute__((aligned(128)));
__thread_local crts_rply_t reply;

static inline void get_args(args_t* from) {
  athread_dma_get(&args, from, sizeof args);
}

static inline void get_part(void) {
  athread_dma_get(part, args.in + _PEN * kPart, sizeof part);
}

static inline void compute(void) {
  for (int i = 0; i < kPart; ++i) part[i] = 2 * part[i] + 1;
}

static inline void put_part(void) {
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}

/* KERNEL(bug) begins the function bug(), a part of kernel() that comes before
 * it computes. It must leave `part` as it was, at least if RIGHT is defined. */
#define KERNEL(bug)                                               \
  static inline __attribute__((always_inline)) void bug(void);    \
  void kernel(args_t* from) {                                     \
    get_args(from);                                               \
    get_part();                                                   \
    bug();                                                        \
    compute();                                                    \
    put_part();                                                   \
  }                                                               \
  static void bug(void)

#endif /* MASTER */
#endif
