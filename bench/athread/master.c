/* Spawns and joins slaves that do nothing, as often as each number of stdin
   says, and then prints it: the case spawn/athread of swamp_bench. */
#include <athread.h>
#include <stdio.h>
#include <stdlib.h>

extern void SLAVE_FUN(nothing)(void*);

int main(int argc, char** argv) {
  const int all = argc > 1 && atoi(argv[1]) > 64;
  int count;
  if (all) {
    athread_init_cgs();
  } else {
    athread_init();
  }
  while (scanf("%d", &count) == 1) {
    for (int i = 0; i < count; ++i) {
      if (all) {
        athread_spawn_cgs(nothing, 0);
        athread_join_cgs();
      } else {
        athread_spawn(nothing, 0);
        athread_join();
      }
    }
    printf("%d\n", count);
    fflush(stdout);
  }
  athread_halt();
  return 0;
}
