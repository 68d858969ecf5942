/* A slave computes for a long time while others send into its LDM. */
#include <slave.h>
#include <unistd.h>

enum { kRounds = 2, kMessages = 40 };

__thread_local long mine, box[8][kMessages];
__thread_local volatile long table[16];
__thread_local crts_rply_t sent, came;

/* The first slave of each row receives, and for some time makes no call. */
void work(int* bad) {
  const int row = _PEN / 8 * 8;
  long sum = _PEN;
  sent = came = 0;
  athread_ssync_row();
  for (int round = 1; round <= kRounds; ++round) {
    if (_PEN == row) {
      usleep(30000);
      for (int i = 0; i < 16; ++i) table[i] = 0;
      for (int i = 0; i < 4000; ++i) sum += table[i % 16];
      athread_rma_wait_value(&came, 7 * kMessages * round);
      for (int i = 1; i < 8; ++i)
        for (int j = 0; j < kMessages; ++j) sum += box[i][j];
    } else {
      for (int j = 0; j < kMessages; ++j) {
        mine = round - 1 + _PEN % 8;
        athread_rma_put(&mine, sizeof mine, row, &box[_PEN - row][j],
                        (void*)&came);
      }
    }
    athread_ssync_row();
  }
  bad[_PEN] += sum != (_PEN == row ? 2520 + _PEN : _PEN);
}
