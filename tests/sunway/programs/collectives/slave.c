#include <crts.h>
#include <slave.h>

extern int bad[64];
extern double table[32];
__thread_local double copy[32];
__thread_local int value, other;
__thread_local crts_rply_t rply;
__thread_local double numbers[2], sums[2];

void meet(void* unused) {
  int wrong = 0;
  unsigned long begin = CRTS_stime_cycle();
  athread_dma_bcast_coll(copy, table, sizeof copy);
  for (int i = 0; i < 32; ++i) wrong += copy[i] != i * 0.5;
  value = _PEN;
  athread_ssync_array();
  athread_rma_row_bcast_coll(&other, &value, 4, 3);
  wrong += other != _ROW * 8 + 3;
  athread_rma_col_bcast_coll(&other, &value, 4, 5);
  wrong += other != 40 + _COL;
  numbers[0] = _PEN;
  numbers[1] = 1;
  CRTS_scoll_redurt(numbers, sums, 2, CRTS_double, OP_add, 0, 0);
  wrong += sums[0] != 2016 || sums[1] != 64;
  athread_ssync_peer(_PEN ^ 1);
  rply = 0;
  athread_ssync_array();
  athread_rma_get(&other, 4, _PEN ^ 9, &value, &rply);
  wrong += other != (_PEN ^ 9);
  athread_syn(ARRAY_SCOPE, 0xffff);
  if (_PEN == 7) athread_dma_ibcast(copy, table + 1, 8, &rply);
  athread_dma_wait_value(&rply, 2);
  wrong += copy[0] != 0.5;
  wrong += CRTS_stime_cycle() == begin;
  bad[_PEN] = wrong;
}
