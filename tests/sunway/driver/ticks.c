#include <athread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
extern SLAVE_FUN(work)(long*);
long ticks, sums[1000];
static void tick(int signal) {
  (void)signal;
  ++ticks;
}
/* Stores by a signal handler between stores. */
int main(void) {
  struct itimerval often = {{0, 20}, {0, 20}}, never = {0};
  athread_init();
  athread_spawn(work, 0);
  athread_join();
  signal(SIGALRM, tick);
  setitimer(ITIMER_REAL, &often, 0);
  for (long i = 0; i < 300000 || ticks < 1000; ++i) sums[i % 1000] += i;
  setitimer(ITIMER_REAL, &never, 0);
  puts("done");
  return 0;
}
