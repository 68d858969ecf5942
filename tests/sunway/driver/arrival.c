#include <slave.h>
__thread_local int got;
__thread_local crts_rply_t sent, came;
void work(int* numbers) {
  int wrong = 0;
  for (int i = 1; i <= 20; ++i) {
    CRTS_ssync_array();
    sent = came = 0;
    if (_PEN == 63) got = i;
    if (_PEN == 63) CRTS_rma_row_ibcast(&got, &got, sizeof got, &sent, &came);
    if (_ROW == 7) CRTS_rma_wait_value(&came, 1);
    if (_ROW == 7) wrong += got != i;
  }
  if (_PEN == 56) numbers[32 * 5 + 1] = wrong;
}
