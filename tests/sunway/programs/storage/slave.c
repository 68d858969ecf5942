#include <slave.h>

typedef struct {
  int a, b;
} pair_t;

extern __cross void* crossed;
extern __thread_local int elsewhere;
__thread_local pair_t pair __attribute__((aligned(128))) = {3, 4};
static __thread_local int launches;
static int __thread_local sum;

static void add(void) {
  static __thread_local int calls = 0;
  calls++;
  sum = (pair.a + pair.b) + calls * (elsewhere + _PEN);
}

void keep(void) {
  launches++;
  add();
  elsewhere = 2;
  if (launches == 5) athread_dma_put((int*)crossed + _PEN, &sum, sizeof sum);
}
