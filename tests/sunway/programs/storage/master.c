#include <athread.h>
#include <stdio.h>

void* crossed;
int shared[64];
extern SLAVE_FUN(keep)();

int main(void) {
  int wrong = 0;
  crossed = shared;
  athread_init();
  for (int i = 0; i < 5; ++i) {
    athread_spawn(keep, 0);
    athread_join();
  }
  for (int i = 0; i < 64; ++i) wrong += shared[i] != 5 * (i + 2) + 7;
  printf("storage: %d wrong\n", wrong);
  return 0;
}
