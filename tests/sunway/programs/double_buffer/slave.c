#include <crts.h>
#include <slave.h>

#define TILE 512
typedef struct {
  float *x, *y;
  float a;
  int n;
} para_t;

__thread_local para_t para __attribute__((aligned(128)));
__thread_local float x[2][TILE] __attribute__((aligned(128)));
__thread_local float y[2][TILE] __attribute__((aligned(128)));
/* Never reset, also not between launches. */
__thread_local crts_rply_t get_rply[2], put_rply[2];
__thread_local unsigned int gets[2], puts[2];

static void begin_get(int slot, int at) {
  CRTS_dma_iget(x[slot], para.x + at, sizeof x[slot], &get_rply[slot]);
  CRTS_dma_iget(y[slot], para.y + at, sizeof y[slot], &get_rply[slot]);
  gets[slot] += 2;
}

void saxpy(para_t* arg) {
  CRTS_dma_get(&para, arg, sizeof(para));
  int share = para.n / 64, begin = CRTS_tid * share, slot = 0;
  begin_get(0, begin);
  for (int at = begin; at < begin + share; at += TILE) {
    int other = 1 - slot;
    if (at + TILE < begin + share) {
      CRTS_dma_wait_value(&put_rply[other], puts[other]);
      begin_get(other, at + TILE);
    }
    CRTS_dma_wait_value(&get_rply[slot], gets[slot]);
    for (int i = 0; i < TILE; ++i) y[slot][i] += para.a * x[slot][i];
    CRTS_dma_iput(para.y + at, y[slot], sizeof y[slot], &put_rply[slot]);
    puts[slot]++;
    slot = other;
  }
  CRTS_dma_wait_value(&put_rply[0], puts[0]);
  CRTS_dma_wait_value(&put_rply[1], puts[1]);
}
