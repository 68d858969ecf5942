#include <alloca.h>
#include <slave.h>

#include "storage.h"

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

static __attribute__((noinline)) int total(int* to, int* from, int count) {
  int i, all = 0;
  athread_dma_get(to, from, count * sizeof *to);
  for (i = 0; i < count; ++i) all += to[i];
  return all;
}

static inline int small(int* from) {
  int numbers[4];
  return total(numbers, from, 4);
}

static int large(int* from, pair_t first) {
  int numbers[12];
  athread_dma_get(&first, from, sizeof first);
  return total(numbers, from, 12) + first.b;
}

/* Transfers to variables on the stack of all kinds. Some of them share their
 * place. */
void transfer(args_t* args) {
  struct {
    pair_t pairs[2];
    int numbers[8];
    double rest;
  } all;
  int* from = args->numbers + 16 * _PEN;
  int count = args->count, sum = 0, i;
  int rows[2][4];
  int variable[count];
  int* more = (int*)alloca(16 * sizeof(int));
  sum += small(from);
  for (i = 0; i < 2; ++i) {
    int numbers[8] __attribute__((aligned(128)));
    sum += total(numbers, from, 8);
  }
  {
    int numbers[16];
    sum += total(numbers, from, 16);
  }
  sum += small(from) + large(from, (pair_t){1, 2});
  sum += total((int[14]){0}, from, 14);
  sum += total(&all.pairs[1].a, from, 10) + all.numbers[7];
  sum += total(all.numbers + 2, from, 6) + total(&rows[0][0], from, 8);
  sum += total(variable, from, count) + total(more, from, 16);
  athread_dma_put(&args->sums[_PEN].b, &sum, sizeof sum);
}
