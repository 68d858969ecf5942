#include <crts.h>
#include <slave.h>

#include "shared.h"

extern int next_tile;
extern long lock_word, sum;
extern int taken[kSlaves];
extern float tiles[kTiles * kTile];
extern float matrix[kSlaves * kSlaves];
extern unsigned long times[kSlaves];
extern result_t results[kSlaves];
extern double ring[kSlaves];
extern volatile int wants[2], turn, ball, busy;
extern volatile long words[kSlaves][kTile];
extern long guarded[3];

__thread_local float tile[kTile];
__thread_local float pairs[2][2 * kSlaves];
__thread_local double mine[4], theirs[2][4];
__thread_local crts_rply_t sent, come[2], got, put;
__thread_local int count = 0;

/* Any slave may take a tile, but the result is the same. */
void share(void* unused) {
  unsigned long start = CRTS_stime_cycle();
  int at;
  while ((at = faaw(&next_tile, 1)) < kTiles) {
    CRTS_dma_get(tile, tiles + at * kTile, sizeof tile);
    for (int i = 0; i < kTile; ++i) tile[i] *= 2;
    CRTS_dma_put(tiles + at * kTile, tile, sizeof tile);
    ++count;
  }
  taken[_PEN] = count;
  athread_lock(&lock_word);
  sum += _PEN;
  athread_unlock(&lock_word);
  times[_PEN] = CRTS_stime_cycle() - start;
}

/* Two columns are fetched while the previous two are stored. */
void columns(void* unused) {
  float* own = matrix + 4 * _PEN;
  got = put = 0;
  CRTS_dma_iget_stride(pairs[0], own, sizeof *pairs, 8, 248, &got);
  CRTS_dma_wait_value(&got, 1);
  CRTS_dma_iget_stride(pairs[1], own + 2, sizeof *pairs, 8, 248, &got);
  for (int i = 0; i < 2 * kSlaves; ++i) pairs[0][i] *= 2;
  CRTS_dma_iput_stride(own, pairs[0], sizeof *pairs, 8, 248, &put);
  CRTS_dma_wait_value(&got, 2);
  for (int i = 0; i < 2 * kSlaves; ++i) pairs[1][i] *= 2;
  CRTS_dma_iput_stride(own + 2, pairs[1], sizeof *pairs, 8, 248, &put);
  CRTS_dma_wait_value(&put, 2);
}

static result_t result_of(double value) {
  result_t result;
  result.kind = 'a';
  result.value = value;
  result.count = 3;
  return result;
}

void pass_on(void* unused) {
  double total = _PEN;
  result_t own = result_of(_PEN);
  CRTS_dma_put(&results[_PEN], &own, sizeof own);
  sent = come[0] = come[1] = 0;
  for (int i = 0; i < 4; ++i) mine[i] = _PEN;
  CRTS_ssync_array();
  for (int step = 0; step < kSlaves - 1; ++step) {
    const int now = step % 2;
    sent = 0;
    CRTS_rma_iput(mine, &sent, sizeof mine, (_PEN + 1) % kSlaves, theirs[now],
                  &come[now]);
    CRTS_rma_wait_value(&sent, 1);
    CRTS_rma_wait_value(&come[now], step / 2 + 1);
    total += theirs[now][0];
    for (int i = 0; i < 4; ++i) mine[i] = theirs[now][i];
    CRTS_ssync_array();
  }
  ring[_PEN] = total;
}

/* A lock of two slaves (Peterson's), a word that two others pass to and fro, a
 * lock whose waiters only read, and data that is volatile for no reason. */
void take_turns(void* unused) {
  const int other = 1 - _PEN % 2;
  for (int i = 0; i < kRounds && _PEN < 2; ++i) {
    wants[_PEN] = 1;
    turn = other;
    __sync_synchronize();
    while (wants[other] && turn == other) {
    }
    ++guarded[0];
    __sync_synchronize();
    wants[_PEN] = 0;
  }
  for (int i = 0; i < kRounds && _PEN / 2 == 1; ++i) {
    while (ball == other) {
    }
    ++guarded[1];
    __sync_synchronize();
    ball = other;
  }
  do {
    while (busy) {
    }
  } while (faaw(&busy, 1) != 0 && faaw(&busy, -1) > 0);
  ++guarded[2];
  faaw(&busy, -1);
  for (int i = 0; i < kTile; ++i) words[_PEN][i] += i;
}
