#include <slave.h>

typedef struct {
  char kind;
  double value;
} padded_t;
extern int data[64], result, same;
extern volatile int ready[64], started;
extern long word, total;
extern padded_t padded[64];

enum { kChain = 8 };

/* Each of the first slaves waits for the next one by a flag in main memory. */
void relay(void* unused) {
  started = 1;
  int sum = 0;
  if (_PEN < kChain - 1) {
    while (!ready[_PEN + 1]);
    athread_dma_get(&sum, &data[_PEN + 1], sizeof sum);
  }
  sum += _PEN;
  athread_dma_put(&data[_PEN], &sum, sizeof sum);
  ready[_PEN] = 1;
  if (_PEN == 0) result = sum;
  same = 7; /* all write the same value */
  while (faal(&word, 1) != 0) { /* a lock made of atomics */
    faal(&word, -1);
  }
  total += _PEN;
  faal(&word, -1);
  padded_t* mine = (padded_t*)ldm_malloc(sizeof *mine);
  mine->kind = 'a';
  mine->value = _PEN;
  padded_t copy = *mine;
  mine->value = copy.value;
  athread_dma_put(&padded[_PEN], mine, sizeof *mine);
  ldm_free(mine, sizeof *mine);
}
