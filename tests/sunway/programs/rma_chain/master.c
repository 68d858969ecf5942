#include <athread.h>
#include <stdio.h>

int got[64][2];
extern SLAVE_FUN(chain)(int (*)[2]);
extern SLAVE_FUN(ring)(int (*)[2]);

int main(void) {
  int wrong = 0;
  athread_init();
  athread_spawn(chain, got);
  athread_join();
  athread_spawn(ring, got);
  athread_join();
  for (int i = 0; i < 64; ++i) wrong += got[i][1] != (i == 0 ? 64 : i);
  for (int i = 0; i < 64; i += 3) {
    if (i + 2 < 64) wrong += got[i][0] != 7 || got[i + 1][0] != 100 + i;
  }
  printf("rma_chain: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
