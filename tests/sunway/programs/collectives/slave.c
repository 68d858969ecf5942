#include <crts.h>
#include <slave.h>

static double table[32]; /* in main memory */
__thread_local double copy[32];
__thread_local int value, other;
__thread_local crts_rply_t rply;
__thread_local double numbers[2], sums[2];
__thread_local int pieces[64];
int* volatile places[64];

/* Slaves tell where in their stacks others shall write. */
static int exchange(int depth) {
  int room[40];
  int* const place = &room[depth];
  places[_PEN] = place;
  rply = 0;
  athread_ssync_array();
  athread_rma_put(&value, sizeof value, _PEN ^ 1, places[_PEN ^ 1], &rply);
  athread_rma_wait_value(&rply, 1);
  return *place;
}

void work(int* bad) {
  int wrong = 0;
  unsigned long begin = CRTS_stime_cycle();
  if (_PEN == 0) {
    for (int i = 0; i < 32; ++i) table[i] = i * 0.5;
  }
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
  /* Slave 17 sends to rows 0, 2, 3 and 5, and does not receive. */
  const int receives = (0x2d >> _ROW & 1) != 0 && _PEN != 17;
  other = -1;
  rply = 0;
  athread_ssync_array();
  if (_PEN == 17) CRTS_rma_row_mcast_other(&other, &value, 4, 0x2d, &rply);
  if (receives) CRTS_rma_wait_value(&rply, 1);
  athread_ssync_array();
  wrong += other != (receives ? 17 : -1);
  athread_ssync_array();
  athread_rma_col_bcast_coll_other(&other, &value, 4, 6);
  wrong += _ROW != 6 && other != 48 + _COL;
  wrong += exchange(_PEN % 8) != (_PEN ^ 1);
  pieces[_PEN] = 0;
  for (int i = 0; i < 64; ++i) pieces[i] = 100 * _PEN + i;
  CRTS_scoll_alltoall_inplace(pieces, sizeof(int), 0, 0);
  for (int i = 0; i < 64; ++i) wrong += pieces[i] != 100 * i + _PEN;
  CRTS_smutex_lock_2spc();
  wrong += CRTS_rank != 0 || CRTS_size != 1 || CRTS_node_rank != 0 ||
           CRTS_node_size != 1 || CRTS_jobid != 0 || CRTS_node_tsize != 64;
  CRTS_smutex_unlock_2spc();
  wrong += CRTS_smng_get_tid_from_spc(CRTS_spc_tid) != _PEN;
  wrong += CRTS_stime_cycle() == begin;
  bad[_PEN] += wrong;
}
