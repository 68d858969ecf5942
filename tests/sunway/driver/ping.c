#include <crts.h>
#include <slave.h>
static __thread_local long here, there;
static __thread_local crts_rply_t sent, came;
void work(int* numbers) {
  CRTS_ssync_array();
  for (int i = 0; i < 1000 && _PEN < 2; ++i) {
    if (_PEN == 1) CRTS_rma_wait_value(&came, i + 1);
    CRTS_rma_iput(&here, &sent, 8, 1 - _PEN, &there, &came);
    CRTS_rma_wait_value(&sent, i + 1);
    if (_PEN == 0) CRTS_rma_wait_value(&came, i + 1);
  }
  if (_PEN == 0) CRTS_dma_put(numbers, &here, 8);
}
