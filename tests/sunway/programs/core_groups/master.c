#include <athread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int* out;
  int groups;
} para_t;

extern void SLAVE_FUN(number)(para_t*);

int main(void) {
  const char* asked = getenv("SWAMP_CORE_GROUPS");
  const char* machine = getenv("SWAMP_MACHINE");
  int groups = machine && !strcmp(machine, "sw26010") ? 4 : 6;
  if (asked) groups = atoi(asked);
  int* out = (int*)_sw_xmalloc(groups * 64 * 32 * sizeof(int));
  para_t para = {out, groups};
  int wrong = 0;
  memset(out, 0, groups * 64 * 32 * sizeof(int));
  athread_init_cgs();
  athread_spawn_cgs(number, &para);
  athread_join_cgs();
  for (int i = 0; i < groups * 64; ++i)
    for (int j = 0; j < 32; ++j) wrong += out[i * 32 + j] != i + groups * j;
  printf("core groups: %d wrong\n", wrong);
  _sw_xfree(out);
  athread_halt();
  return 0;
}
