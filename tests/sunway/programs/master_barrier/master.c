#include <crts.h>
#include <athread.h>
#include <stdio.h>

long lock_word, counter;
int tickets;
volatile int round_number;
int seen[64];
extern void SLAVE_FUN(serve)(void*);

int main(void) {
  int wrong = 0;
  CRTS_init();
  athread_spawn(serve, 0);
  for (int i = 1; i <= 3; ++i) {
    round_number = i;
    CRTS_sync_master_array();
    CRTS_sync_master_array();
    for (int j = 0; j < 64; ++j) wrong += seen[j] != i;
  }
  athread_join();
  printf("master: %d wrong, counter %ld, tickets %d\n", wrong, counter,
         tickets);
  athread_halt();
  return 0;
}
