/* Inline assembly, DMA descriptors, and what Sunway's compilers know without a
 * header: see slave.c. */
#include <athread.h>
#include <stdio.h>

extern SLAVE_FUN(instructions)();
extern SLAVE_FUN(exchange)();

__uncached int tickets;
__uncached long calls;
long results[64][8];
double in[64 * 32], out[64 * 32];

int main(void) {
  int i, wrong = 0;
  long taken = 0;
  for (i = 0; i < 64 * 32; ++i) in[i] = i;
  athread_init();
  athread_spawn(SLAVE_FUN(instructions), results);
  athread_join();
  for (i = 0; i < 64; ++i) {
    wrong += results[i][0] != i / 8 * 100 + i % 8;
    taken += results[i][1];
    wrong += results[i][2] != 3 || results[i][3] != (3 << 4) + 7;
    wrong += results[i][4] != 5 * 6 / 2 || results[i][5] != 0;
  }
  printf("instructions: %d wrong, tickets %d, taken %ld, calls %ld\n", wrong,
         tickets, taken, calls);
  athread_spawn64(exchange);
  athread_join64();
  for (i = 0, wrong = 0; i < 64 * 32; ++i) {
    const int from = i / 32 / 8 * 8;
    wrong += out[i] != 2 * in[i] + from;
  }
  printf("exchange: %d wrong\n", wrong);
  return 0;
}
