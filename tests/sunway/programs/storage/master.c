#include <athread.h>
#include <stdio.h>

#include "storage.h"

void* crossed;
int shared[64];
extern SLAVE_FUN(keep)();
extern SLAVE_FUN(transfer)();

/* Arrays on the stack of the master, some of which share their place. */
static int local(void) {
  args_t args;
  int wrong = 0, i, j;
  args.count = 5;
  for (i = 0; i < 2; ++i) {
    int numbers[1024];
    pair_t sums[64];
    for (j = 0; j < 1024; ++j) numbers[j] = j;
    args.numbers = numbers;
    args.sums = sums;
    athread_spawn(transfer, &args);
    athread_join();
    for (j = 0; j < 64; ++j) wrong += sums[j].b != 113 * 16 * j + 573;
  }
  {
    struct {
      int other, numbers[1024];
      pair_t sums[64];
    } all;
    for (j = 0; j < 1024; ++j) all.numbers[j] = j;
    args.numbers = all.numbers;
    args.sums = all.sums;
    athread_spawn(transfer, &args);
    athread_join();
    for (j = 0; j < 64; ++j) wrong += all.sums[j].b != 113 * 16 * j + 573;
  }
  return wrong;
}

int main(void) {
  int wrong = 0;
  crossed = shared;
  athread_init();
  for (int i = 0; i < 5; ++i) {
    athread_spawn(keep, 0);
    athread_join();
  }
  for (int i = 0; i < 64; ++i) wrong += shared[i] != 5 * (i + 2) + 7;
  printf("storage: %d wrong\n", wrong + local());
  return 0;
}
