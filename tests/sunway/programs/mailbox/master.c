/* The master sends a letter to running slaves and stops them by words of the
 * argument struct, of which the slaves get a copy by DMA. */
#include <athread.h>
#include <stdio.h>

#include "shared.h"

extern void SLAVE_FUN(serve)(work_t*);
extern void stop(work_t*);

long results[64], taken;
long news;
volatile int ended; /* the slaves poll it by DMA and then read `news` */

int main(void) {
  int wrong = 0;
  work_t work = {results, 0, 0, 0, 0, 0};
  athread_init();
  athread_spawn(serve, &work);
  work.letter = 40;
  __atomic_store_n(&work.go, 1, __ATOMIC_RELEASE);
  stop(&work);
  news = 2;
  ended = 1;
  athread_join();
  for (int i = 0; i < 64; ++i) wrong += results[i] != 42 + i;
  printf("mailbox: %d wrong, taken %ld, tickets %ld\n", wrong, taken,
         work.tickets);
  athread_halt();
  return 0;
}
