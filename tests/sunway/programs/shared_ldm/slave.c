#include <crts.h>
#include <swperf.h>

#include "shared.h"

#define PART (N / 64)

__thread_local_share double shared[N] __attribute__((aligned(64)));
__thread_local_share int launches = 0;
__thread_local double mine[PART] __attribute__((aligned(64)));

void slave_reverse(job* main_job) {
  job j;
  double sum = 0, buffer[64];
  unsigned long cycles;
  const int begin = CRTS_tid * PART;
  penv_slave0_cycle_init();
  CRTS_dma_get(&j, main_job, sizeof(job));
  athread_memcpy_sldm(shared + begin, j.x + begin, PART * sizeof(double),
                      MEM_TO_LDM);
  CRTS_ssync_sldm();
  if (CRTS_tid == 0) ++launches;
  for (int i = 0; i < PART; ++i) {
    mine[i] = shared[N - 1 - begin - i];
    sum += mine[i];
  }
  CRTS_dma_put(j.y + begin, mine, sizeof mine);
  athread_redurt(&sum, &sum, 1, athread_double, OP_add, buffer, 64);
  CRTS_ssync_2spc();
  CRTS_ssync_32spe();
  athread_ssync(ROW_SCOPE, CRTS_cid < 3 ? 0x07 : 0xf8);
  CRTS_smutex_lock_row();
  CRTS_smutex_unlock_row();
  penv_slave0_cycle_count(&cycles);
  if (CRTS_tid == 0 && cycles > 0 && CRTS_spcn == 0) {
    sum *= launches;
    CRTS_dma_put(j.sum, &sum, sizeof sum);
  }
}
