/* Several messages of one slave go into one buffer, which its receiver reads only
 * after the last of them. */
#include <slave.h>

enum { kTimes = 10 };

__thread_local double line[8], box[8];
__thread_local crts_rply_t sent, came, answered;

static void fill(double value) {
  for (int i = 0; i < 8; ++i) line[i] = value;
}

static double sum(void) {
  double all = 0;
  for (int i = 0; i < 8; ++i) all += box[i];
  return all;
}

/* Slaves with even numbers send, each to the next one. */
void work(int* bad) {
  const int sends = _PEN % 2 == 0;
  const int other = _PEN ^ 1;
  double all = 0;
  sent = came = answered = 0;
  CRTS_ssync_array();
  for (int i = 0; i < kTimes; ++i) { /* the last message has 4 */
    fill(i == kTimes - 1 ? 4 : i);
    if (sends) CRTS_rma_put(line, sizeof line, other, box, &came);
  }
  if (!sends) {
    CRTS_rma_wait_value(&came, kTimes);
    all += sum();
  }
  CRTS_ssync_array();
  sent = came = 0;
  CRTS_ssync_array();
  for (int i = 1; i <= kTimes; ++i) { /* the receiver waits for each */
    fill(i == kTimes ? 5 : i);
    if (sends) {
      CRTS_rma_iput(line, &sent, sizeof line, other, box, &came);
      CRTS_rma_wait_value(&sent, i);
    } else {
      CRTS_rma_wait_value(&came, i);
    }
  }
  if (!sends) all += sum();
  CRTS_ssync_array();
  sent = came = 0;
  CRTS_ssync_array();
  fill(6); /* at the same time */
  if (sends) {
    for (int i = 0; i < kTimes; ++i) {
      CRTS_rma_iput(line, &sent, sizeof line, other, box, &came);
    }
    CRTS_rma_wait_value(&sent, kTimes);
  } else {
    CRTS_rma_wait_value(&came, kTimes);
    all += sum();
  }
  CRTS_ssync_array();
  came = 0;
  CRTS_ssync_array();
  for (int i = 0; i < 2 * kTimes; ++i) { /* an answer to every tenth */
    fill(i);
    if (sends) {
      CRTS_rma_put(line, sizeof line, other, box, &came);
      if (i % kTimes == kTimes - 1) {
        CRTS_rma_wait_value(&answered, i / kTimes + 1);
      }
    } else if (i % kTimes == kTimes - 1) {
      CRTS_rma_wait_value(&came, i + 1);
      all += sum();
      CRTS_rma_put(line, sizeof line[0], other, box, &answered);
    }
  }
  if (!sends) bad[_PEN] += all != 8 * (4 + 5 + 6 + 9 + 19);
}
