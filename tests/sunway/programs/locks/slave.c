#include <slave.h>

#include "shared.h"

extern volatile long long_lock;
extern volatile int64_t crts_lock;
extern long counter, tries;
extern order_t orders;

void count(order_t* order) {
  athread_lock(&long_lock);
  counter += order->step;
  athread_unlock(&long_lock);
  while (CRTS_mutex_trylock(&crts_lock) != 0) {
  }
  tries += 1;
  CRTS_mutex_unlock(&crts_lock);
  /* The last call of the last slave is an unlock. */
  CRTS_mutex_lock(&crts_lock);
  tries += 1;
  CRTS_mutex_unlock(&crts_lock);
}

/* Slave 1 reads what slave 0 wrote: the master is in a barrier with slave 0,
 * then with slave 1. */
extern long handed[2];
void hand_over(void* unused) {
  if (_PEN == 0) {
    handed[0] = 3;
    CRTS_ssync_master_spe();
  } else if (_PEN == 1) {
    CRTS_ssync_master_spe();
    handed[1] = handed[0] + 1;
  }
}
