#include <athread.h>
#include <stdio.h>

int bad[64];
double table[32];
extern void SLAVE_FUN(meet)(void*);

int main(void) {
  int wrong = 0;
  for (int i = 0; i < 32; ++i) table[i] = i * 0.5;
  athread_init();
  athread_spawn(meet, 0);
  athread_join();
  for (int i = 0; i < 64; ++i) wrong += bad[i];
  printf("collectives: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
