#include <slave.h>

extern long lock_word, counter;
extern int tickets;
extern volatile int round_number;
extern int seen[64];

void serve(void* unused) {
  for (int i = 1; i <= 3; ++i) {
    CRTS_ssync_master_array();
    seen[_PEN] = round_number;
    CRTS_ssync_master_array();
  }
  athread_lock(&lock_word);
  counter += _PEN;
  athread_unlock(&lock_word);
  faaw(&tickets, 1);
}
