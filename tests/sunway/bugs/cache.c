/* Stale reads of slaves' data caches, with SWAMP_CHECK_CACHE=1. */
#include <stdlib.h>

#include "gallery.h"

enum { kLine = 256 / sizeof(long) };

#ifdef BUG_cache_barrier
long table[8 * kLine] __attribute__((aligned(256)));

/* Each slave reads its neighbour's number before and after it is put, and a
 * table that nobody changes.
 * RUN cache_barrier: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  const int next = (_PEN + 1) % kSlaves;
  long sum = 0;
  for (int i = 0; i < 8 * kLine; ++i) sum += table[i];
  sum += flag[next];
  athread_ssync_array();
  long one = 1 + sum;
  athread_dma_put(&flag[_PEN], &one, sizeof one);
  athread_ssync_array();
  if (kRight) flush_slave_cache();
  /* BUG cache_barrier: stale-read */
  sum += flag[next];
  for (int i = 0; i < 8 * kLine; ++i) sum += table[i];
  athread_ssync_array();
  flag[_PEN] = sum > 100;
}
#endif

#ifdef BUG_cache_line
long numbers[2 * kLine] __attribute__((aligned(256)));
__thread_local long seven = 7;

/* A slave reads the first number, and then one of the same line that it has not
 * read yet and that another slave has put. What it reads between is right: a
 * store that changes nothing, and its own store after another slave's.
 * RUN cache_line: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  const int place = kRight ? kLine : kLine - 1;
  long sum = _PEN == 0 ? numbers[0] : 0;
  athread_ssync_array();
  if (_PEN == 1) athread_dma_put(&numbers[place], &seven, sizeof seven);
  if (_PEN == 2) numbers[1] = 0;
  if (_PEN == 3) numbers[2] = 5;
  athread_ssync_array();
  if (_PEN == 0) {
    numbers[2] = 6;
    __asm__ volatile("" ::: "memory");
    sum += numbers[1] + numbers[2] - 6;
  }
  /* BUG cache_line: stale-read */
  if (_PEN == 0) sum += numbers[place];
  if (sum > 7) part[0] = 0;
}
#endif

#ifdef BUG_cache_loop
long numbers[kSlaves * kLine] __attribute__((aligned(256)));

/* The loop has no calls and is checked once, before it begins.
 * RUN cache_loop: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  long sum = 0;
  for (int round = 0; round < 2; ++round) {
    /* BUG cache_loop: stale-read */
    for (int i = 0; i < kSlaves * kLine; ++i) sum += numbers[i];
    athread_ssync_array();
    numbers[_PEN * kLine + 1] = round + 1;
    if (kRight) evict_slave_cache_cont(numbers, &numbers[kSlaves * kLine]);
    athread_ssync_array();
  }
  if (sum > 2 * kSlaves) part[0] = 0;
}
#endif

#ifdef BUG_cache_sum
long lock_word;
#ifdef RIGHT
__uncached long sum;
#else
long sum;
#endif

/* RUN cache_sum: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  for (int i = 0; i < 3; ++i) {
    athread_lock(&lock_word);
    /* BUG cache_sum: stale-read */
    sum += _PEN;
    athread_unlock(&lock_word);
    athread_ssync_array();
  }
}
#endif

#ifdef BUG_cache_atomic
long* volatile counter;

/* Tasks by a counter on the heap, of which slaves look at the value, too.
 * RUN cache_atomic: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  if (_PEN == 0) {
    counter = malloc(sizeof *counter);
    *counter = 0;
    flush_slave_cache();
  }
  athread_ssync_array();
  long* next = counter;
  if (kRight) set_ptr_uncached((void**)&next);
  if (*next != 0) part[0] = 0;
  athread_ssync_array();
  while (faal(next, 1) < 2 * kSlaves) {
  }
  athread_ssync_array();
  /* BUG cache_atomic: stale-read */
  if (*next < 3 * kSlaves) part[0] = 0;
  athread_ssync_array();
  if (_PEN == 0) free(next);
}
#endif

#ifdef BUG_cache_own
long counters[kSlaves * kLine] __attribute__((aligned(256)));

/* An atomic goes past the slave's own cache, too.
 * RUN cache_own: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  long* mine = &counters[_PEN * kLine];
  long sum = *mine;
  faal(mine, 1);
  if (kRight) sw_slave_evictd(mine);
  /* BUG cache_own: stale-read */
  sum += *mine;
  if (sum > 100) part[0] = 0;
}
#endif

#ifdef BUG_cache_own_put
long counters[kSlaves * kLine] __attribute__((aligned(256)));

/* What a slave stored stays in its cache, also if its own DMA changes it.
 * RUN cache_own_put: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  long* mine = &counters[_PEN * kLine];
  long number = 7;
  *mine = 5;
  if (kRight) flush_slave_cache();
  athread_dma_put(mine, &number, sizeof number);
  /* BUG cache_own_put: stale-read */
  if (*mine > 100) part[0] = 0;
}
#endif

#ifdef BUG_cache_capacity
enum { kWay = 32 * 1024 / sizeof(long) };
long numbers[5 * kWay] __attribute__((aligned(256)));

/* Four lines whose addresses differ by 32 KiB are in the cache, and a fifth
 * takes the place of the first.
 * RUN cache_capacity: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  long sum = numbers[0];
  for (int i = 1; i < (kRight ? 5 : 4); ++i) sum += numbers[i * kWay];
  athread_ssync_array();
  if (_PEN == 5) {
    numbers[0] = 1;
    flush_slave_cache();
  }
  athread_ssync_array();
  /* BUG cache_capacity: stale-read */
  sum += numbers[0];
  if (sum > 1) part[0] = 0;
}
#endif

#ifdef BUG_cache_master
/* The master changes the settings of a running kernel.
 * RUN cache_master: SWAMP_CHECK_CACHE=1 */
void kernel(args_t* from) {
  long seen = flag[0];
  CRTS_ssync_master_array();
  CRTS_ssync_master_array();
  if (kRight) sw_slave_evictd(&flag[0]);
  /* BUG cache_master: stale-read */
  seen += flag[0];
  get_args(from);
  get_part();
  if (seen != 5) part[0] = 0;
  compute();
  put_part();
}
#endif

#ifdef BUG_cache_stored
long numbers[kSlaves] __attribute__((aligned(256)));

/* Parts of one line, which others read for the first time after the barrier; a
 * slave reads its own before, and a store that changes nothing stays.
 * RUN cache_stored: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  numbers[_PEN] = _PEN;
  long sum = numbers[_PEN];
  if (kRight) sw_slave_flushd(&numbers[_PEN]);
  athread_ssync_array();
  if (_PEN == 0) numbers[0] = 0;
  athread_ssync_array();
  if (_PEN == 3) {
    /* BUG cache_stored: stale-read */
    for (int i = 0; i < kSlaves; ++i) sum += numbers[i];
  }
  if (sum > 3000) part[0] = 0;
}
#endif

#ifdef BUG_cache_get
long numbers[kSlaves * kLine] __attribute__((aligned(256)));

/* A slave's own get does not see what it has stored.
 * RUN cache_get: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  long two[2];
  numbers[_PEN * kLine] = 1 + _PEN;
  numbers[_PEN * kLine + 1] = 0;
  if (kRight) flush_slave_cache();
  /* BUG cache_get: stale-read */
  athread_dma_get(two, &numbers[_PEN * kLine], sizeof two);
  if (two[0] + two[1] > 100) part[0] = 0;
}
#endif

#ifdef BUG_cache_put
long numbers[kSlaves * kLine] __attribute__((aligned(256)));

/* A slave's own put changes a line that it has read, also of a neighbour; what
 * it stores afterwards it sees.
 * RUN cache_put: SWAMP_CHECK_CACHE=1 */
KERNEL(bug) {
  long* mine = &numbers[_PEN * kLine];
  long two[2] = {1, 2};
  long sum = mine[2];
  athread_dma_put(mine, two, sizeof two);
  mine[0] = 3;
  sum += mine[0];
  if (kRight) sw_slave_evictd(mine);
  /* BUG cache_put: stale-read */
  sum += mine[1];
  if (sum > 100) part[0] = 0;
}
#endif
