/* One host thread for each core group, as on SW26010. Each thread launches. */
#include <athread.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLaunches = 12 };

typedef struct {
  int* out; /* of 64 slaves */
  int add;
  int group;
} para_t;

extern void SLAVE_FUN(add)(para_t*);

static int out[6][64];
static int wrong[6];
static int groups;
static pthread_barrier_t started;

static void* serve(void* number) {
  const int i = (int)(long)number;
  pthread_barrier_wait(&started);
  for (int n = 1; n <= kLaunches; ++n) {
    para_t para = {out[i], n, -1};
    wrong[i] += athread_spawn(add, &para) != 0;
    CRTS_sync_master_array();
    wrong[i] += para.group != current_array_id();
    wrong[i] += athread_join() != 0;
  }
  for (int j = 0; j < 64; ++j)
    wrong[i] += out[i][j] != j * kLaunches * (kLaunches + 1) / 2;
  return 0;
}

int main(void) {
  const char* asked = getenv("SWAMP_CORE_GROUPS");
  const char* machine = getenv("SWAMP_MACHINE");
  int total = 0;
  pthread_t threads[6];
  groups = machine && !strcmp(machine, "sw26010") ? 4 : 6;
  if (asked) groups = atoi(asked);
  athread_init();
  for (int round = 0; round < 2; ++round) {
    memset(out, 0, sizeof out);
    pthread_barrier_init(&started, 0, groups);
    for (long i = 0; i < groups; ++i)
      pthread_create(&threads[i], 0, serve, (void*)i);
    for (int i = 0; i < groups; ++i) pthread_join(threads[i], 0);
    pthread_barrier_destroy(&started);
  }
  for (int i = 0; i < groups; ++i) total += wrong[i];
  printf("host threads: %d wrong\n", total);
  return 0;
}
