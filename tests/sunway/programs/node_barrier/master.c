/* Core groups that are spawned one after another and call ssync_node. */
#include <athread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void SLAVE_FUN(step)(void*);

int in[6 * 64], seen[6 * 64];
volatile int used;

int main(void) {
  const char* asked = getenv("SWAMP_CORE_GROUPS");
  const char* machine = getenv("SWAMP_MACHINE");
  int groups = machine && !strcmp(machine, "sw26010") ? 4 : 6;
  if (asked) groups = atoi(asked);
  int wrong = 0;
  athread_init_cgs();
  for (used = 1; used <= groups; used += 2) {
    for (int late = 0; late < 2; ++late) {
      memset(in, 0, sizeof in);
      memset(seen, 0, sizeof seen);
      for (int i = 0; i < used; ++i) {
        if (late) usleep(2000);
        athread_spawn_cgmask(1 << i, step, 0);
      }
      if (late) usleep(30000);
      for (int i = used - 1; i >= 0; --i) athread_join_cgmask(1 << i);
      for (int i = 0; i < 64 * used; ++i) wrong += seen[i] != 2;
    }
  }
  printf("node: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
