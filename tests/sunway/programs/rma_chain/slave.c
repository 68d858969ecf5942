/* Only reply words and flags order the slaves that use a buffer. */
#include <crts.h>

__thread_local int shown, copy, number;
__thread_local volatile int go;
__thread_local crts_rply_t fetched, was_read, sent, came;

static int chain(void) {
  const int first = _PEN / 3 * 3;
  shown = 100 + _PEN;
  go = fetched = was_read = sent = came = 0;
  number = 7;
  CRTS_ssync_array();
  if (first + 2 >= 64) return 0;
  if (_PEN == first + 1) { /* gets from the first */
    CRTS_rma_iget(&copy, &fetched, sizeof copy, first, &shown, &was_read);
    CRTS_rma_wait_value(&fetched, 1);
    return copy != 100 + first;
  } else if (_PEN == first) { /* then permits the third to write */
    int one = 1;
    CRTS_rma_wait_value(&was_read, 1);
    CRTS_rma_iput(&one, &sent, sizeof one, first + 2, (void*)&go, &fetched);
    CRTS_rma_wait_value(&sent, 1);
    CRTS_rma_wait_value(&came, 1);
    return shown != 7;
  } else {
    while (go == 0) {
    }
    CRTS_rma_iput(&number, &sent, sizeof number, first, &shown, &came);
    CRTS_rma_wait_value(&sent, 1);
  }
  return 0;
}

__thread_local int token, next;
__thread_local volatile crts_rply_t passed, arrived;

/* All slaves but one poll. */
static int ring(void) {
  token = passed = arrived = 0;
  CRTS_ssync_array();
  while (arrived < (_PEN != 0)) {
  }
  next = token + 1;
  CRTS_rma_iput(&next, &passed, sizeof next, (_PEN + 1) % 64, &token, &arrived);
  while (passed < 1 || arrived < 1) {
  }
  return token != (_PEN == 0 ? 64 : _PEN);
}

void work(int* bad) {
  bad[_PEN] += chain();
  CRTS_ssync_array();
  bad[_PEN] += ring();
}
