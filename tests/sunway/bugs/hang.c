/* Slaves that wait for something that cannot happen. */
#include "gallery.h"

#ifdef BUG_sync_divergence
KERNEL(bug) {
  if (!kRight && _PEN == 5) return;
  /* BUG sync_divergence: sync-divergence */
  athread_ssync_array();
}
#endif

#ifdef BUG_sync_different
KERNEL(bug) {
#ifndef RIGHT
  if (_ROW == 2) {
    athread_ssync_row();
    athread_ssync_row();
  }
  /* BUG sync_different: sync-divergence */
  if (_PEN == 17) athread_ssync_row();
#endif
  athread_ssync_array();
}
#endif

#ifdef BUG_lock_kept
/* A slave does not release a lock for which others wait. */
volatile long word; /* in main memory */

KERNEL(bug) {
  /* BUG lock_kept: hang */
  athread_lock(&word);
  flag[0] += 1;
  if (kRight || _PEN != 0) athread_unlock(&word);
}
#endif

#ifdef BUG_lock_kept_returned
/* A slave returns without releasing a lock for which the master waits. */
extern volatile long word;

KERNEL(bug) {
  if (_PEN == 0) {
    athread_lock(&word);
#ifndef RIGHT
    CRTS_ssync_master_array();
    return;
#endif
    athread_unlock(&word);
  }
  CRTS_ssync_master_array();
}
#endif

#ifdef BUG_silent_loop
/* RUN silent_loop: SWAMP_CHECK_TIMEOUT=3 */
__thread_local volatile int never;

KERNEL(bug) {
#ifndef RIGHT
  /* BUG silent_loop: hang */
  while (never == 0) {
  }
#endif
}
#endif

#ifdef BUG_spin_two_words
/* A slave waits for the sum of two words in main memory.
 * RUN spin_two_words: SWAMP_CHECK_TIMEOUT=3 */
volatile long words[2]; /* in main memory */

KERNEL(bug) {
  if (_PEN == 0) {
    /* BUG spin_two_words: hang */
    while (words[0] + words[1] < 5) {
    }
  } else if (_PEN == 1) {
    words[0] = 2;
    words[1] = kRight ? 3 : 2;
  }
}
#endif
