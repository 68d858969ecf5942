#include <slave.h>
typedef struct {
  long calls, cycles;
} counter_t;
extern counter_t counters[2];
extern int shared;
static inline int count(void) { return ++counters[1].calls + shared; }
__thread_local counter_t counters[2] __attribute__((aligned(32)));
__thread_local struct { int a, b; } pair;
void work(int* n) {
  pair.b = count();
  athread_dma_put(n + 32 * _PEN + 1, &pair.b, 4);
}
