#include <slave.h>

static __thread_local long mine, total;
static __thread_local long from[8];
static __thread_local athread_rply_t here, there;

void work(int* bad) {
  mine = _PEN + 1;
  here = 0;
  there = 0;
  athread_ssync_array();
  /* To the first slave of the row, then to slave 0, then back to all. */
  athread_rma_iput(&mine, &here, sizeof mine, _ROW * 8, &from[_COL], &there);
  athread_rma_wait_value(&here, 1);
  if (_COL == 0) {
    athread_rma_wait_value(&there, 8);
    mine = 0;
    for (int i = 0; i < 8; ++i) mine += from[i];
  }
  athread_ssync_col();
  here = 0;
  there = 0;
  athread_ssync_array();
  if (_COL == 0) {
    athread_rma_iput(&mine, &here, sizeof mine, 0, &from[_ROW], &there);
    athread_rma_wait_value(&here, 1);
  }
  if (_PEN == 0) {
    athread_rma_wait_value(&there, 8);
    total = 0;
    for (int i = 0; i < 8; ++i) total += from[i];
  }
  athread_ssync_array();
  athread_rma_bcast_coll(&total, &total, sizeof total, 0);
  bad[_PEN] += total != 64 * 65 / 2;
}
