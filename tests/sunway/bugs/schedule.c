/* Results that depend on the order of the slaves or transfers. */
#include <string.h>

#include "gallery.h"

#ifdef BUG_schedule_dma
__thread_local double zeros[4];
int all_zero[kSlaves];

/* memcmp() of the C library, whose loads are not observed, reads too early. */
void kernel(args_t* from) {
  int is_zero;
  get_args(from);
  reply = 0;
  athread_dma_iget(part, args.in + _PEN * kPart, sizeof part, &reply);
  if (kRight) athread_dma_wait_value(&reply, 1);
  is_zero = memcmp(part, zeros, sizeof *zeros) == 0;
  athread_dma_wait_value(&reply, 1);
  compute();
  put_part();
  /* BUG schedule_dma: schedule */
  all_zero[_PEN] = is_zero;
}
#endif

#ifdef BUG_schedule_last
int next;
double first[kSlaves];

KERNEL(bug) {
  int place;
  place = kRight ? _PEN : faaw(&next, 1);
  /* BUG schedule_last: schedule */
  athread_dma_put(&first[place], part, sizeof *part);
}
#endif

#ifdef BUG_schedule_sum
__uncached long lock_word;
double total;
double sums[kSlaves];

/* The lock protects the sum, but its last digits depend on the order. */
static void add_up(double sum) {
#ifdef RIGHT
  sums[_PEN] = sum;
  athread_ssync_array();
  if (_PEN == 0) {
    for (int i = 0; i < kSlaves; ++i) total += sums[i];
  }
#else
  athread_lock(&lock_word);
  /* BUG schedule_sum: schedule */
  total += sum;
  athread_unlock(&lock_word);
#endif
}

void kernel(args_t* from) {
  double sum = 0;
  get_args(from);
  get_part();
  for (int i = 0; i < kPart; ++i) {
    part[i] = 2 * part[i] + 1;
    sum += 1 / part[i];
  }
  put_part();
  add_up(sum);
}
#endif

#ifdef BUG_shared_tasks
volatile long next_task;
double pairs[kSlaves];

/* Any slave takes a task. Two tasks add to one number. */
void kernel(args_t* from) {
  long task;
  get_args(from);
  while ((task = faal(&next_task, 1)) < kSlaves) {
    athread_dma_get(part, args.in + task * kPart, sizeof part);
    compute();
    athread_dma_put(args.out + task * kPart, part, sizeof part);
    /* BUG shared_tasks: overlap */
    pairs[kRight ? task : task / 2] += part[0];
  }
}
#endif

#ifdef BUG_late_task
volatile long next_task;
volatile long ended[kSlaves];

/* A slave takes the second half of a task that another one may not have begun,
 * although all first halves were taken before. */
void kernel(args_t* from) {
  long task;
  get_args(from);
  while ((task = faal(&next_task, 1)) < 2 * kSlaves) {
    const long at = task % kSlaves * kPart;
    if (task < kSlaves) {
      athread_dma_get(part, args.in + at, sizeof part);
      compute();
      /* BUG late_task: overlap */
      athread_dma_put(args.out + at, part, sizeof part);
      ended[task] = 1;
    } else {
      while (kRight && ended[task % kSlaves] == 0) {
      }
      athread_dma_get(part, args.out + at, sizeof part);
    }
  }
}
#endif

#if defined BUG_volatile_counter || defined BUG_volatile_groups
volatile int next;

/* volatile does not make the two accesses one. */
void kernel(args_t* from) {
  int place;
  if (_CGN == 0) {
    get_args(from);
    get_part();
    compute();
    put_part();
  }
#ifdef RIGHT
  place = faaw(&next, 1);
#else
  place = next < kSlaves ? next : 0;
  /* BUG volatile_counter: schedule */
  /* BUG volatile_groups: schedule */
  next = place + 1;
#endif
}
#endif

#ifdef BUG_volatile_lock
volatile int taken;
volatile int64_t lock_word;
long total;

/* Two slaves may see that nobody has the lock. */
KERNEL(bug) {
#ifdef RIGHT
  CRTS_mutex_lock(&lock_word);
#else
  while (taken) {
  }
  taken = 1;
#endif
  /* BUG volatile_lock: overlap */
  total += _PEN;
#ifdef RIGHT
  CRTS_mutex_unlock(&lock_word);
#else
  taken = 0;
#endif
}
#endif
