/* Locks that the master and the slaves take. LOCK_ROUNDS is the number of
 * rounds, 100 by default. */
#include <athread.h>
#include <crts.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared.h"

extern void SLAVE_FUN(count)(order_t*);
extern void SLAVE_FUN(hand_over)(void*);

volatile long long_lock;
volatile int64_t crts_lock;
long counter, tries, handed[2];

int main(void) {
  const char* asked = getenv("LOCK_ROUNDS");
  int rounds = asked ? atoi(asked) : 100;
  int wrong = 0;
  order_t order;
  athread_init();
  for (int i = 0; i < rounds; ++i) {
    int slaves = i % 8 == 0 ? 64 : 8;
    counter = tries = 0;
    athread_set_num_threads(slaves);
    order.step = 0;
    /* The slaves wait for the master, which changes what they will read. */
    athread_lock(&long_lock);
    athread_spawn(count, &order);
    for (volatile int work = 0; work < 1000 * (i % 5); ++work) {
    }
    order.step = 2;
    athread_unlock(&long_lock);
    for (int j = 0; j < 3; ++j) {
      athread_lock(&long_lock);
      counter += 1;
      athread_unlock(&long_lock);
      CRTS_mutex_lock(&crts_lock);
      tries += 1;
      CRTS_mutex_unlock(&crts_lock);
    }
    while (CRTS_mutex_trylock(&crts_lock) != 0) {
    }
    tries += 1;
    CRTS_mutex_unlock(&crts_lock);
    athread_join();
    wrong += counter != 2 * slaves + 3 || tries != 2 * slaves + 4;
  }
  athread_set_num_threads(64);
  athread_spawn(hand_over, 0);
  CRTS_sync_master_spe(0);
  CRTS_sync_master_spe(1);
  athread_join();
  printf("locks: %d wrong, handed over %ld\n", wrong, handed[1]);
  athread_halt();
  return 0;
}
