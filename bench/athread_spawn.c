/* Prints what an athread program pays to spawn and join slaves that do nothing.
   Compiled by swcc twice, for the master and with -DSLAVE for the slaves. */
#ifdef SLAVE
#include <slave.h>

void nothing(void* unused) { (void)unused; }

#else
#include <athread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern void SLAVE_FUN(nothing)(void*);

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static void spawn_and_join(int all_groups) {
  if (all_groups) {
    athread_spawn_cgs(nothing, 0);
    athread_join_cgs();
  } else {
    athread_spawn(nothing, 0);
    athread_join();
  }
}

int main(int argc, char** argv) {
  enum { kBatch = 20, kBatches = 50 };
  const int slaves = argc > 1 ? atoi(argv[1]) : 64;
  double fastest = 1e30;
  if (argc > 2 || (slaves != 64 && slaves != 384)) {
    fprintf(stderr,
            "usage: swamp_bench_athread [64|384]   slaves: one core group, or "
            "all six\n");
    return 2;
  }
  if (slaves == 384) {
    athread_init_cgs();
  } else {
    athread_init();
  }
  spawn_and_join(slaves == 384);
  for (int batch = 0; batch < kBatches; ++batch) {
    const double begin = microseconds();
    for (int i = 0; i < kBatch; ++i) spawn_and_join(slaves == 384);
    const double each = (microseconds() - begin) / kBatch;
    if (each < fastest) fastest = each;
  }
  printf("spawn and join, %d slaves: %.1f us (fastest of %d batches of %d)\n",
         slaves, fastest, kBatches, kBatch);
  athread_halt();
  return 0;
}
#endif
