/* Programs whose result does not depend on the order of the slaves: dynamic work
 * sharing, times, sums under a lock, padding, adjacent strides in flight, and a
 * ring. */
#include <athread.h>
#include <stdio.h>

#include "shared.h"

int next_tile;
long lock_word, sum;
int taken[kSlaves];
float tiles[kTiles * kTile];
float matrix[kSlaves * kSlaves];
unsigned long times[kSlaves];
result_t results[kSlaves];
double ring[kSlaves];
volatile int wants[2], turn, ball, busy;
volatile long words[kSlaves][kTile];
long guarded[3];

extern SLAVE_FUN(share)(void*);
extern SLAVE_FUN(columns)(void*);
extern SLAVE_FUN(pass_on)(void*);
extern SLAVE_FUN(take_turns)(void*);

int main(void) {
  int all = 0, timed = 0, wrong = 0;
  double values = 0;
  for (int i = 0; i < kTiles * kTile; ++i) tiles[i] = i;
  for (int i = 0; i < kSlaves * kSlaves; ++i) matrix[i] = i;
  athread_init();
  for (int round = 0; round < 3; ++round) {
    next_tile = 0;
    athread_spawn(share, NULL);
    athread_join();
  }
  athread_set_num_threads(16);
  athread_spawn(columns, NULL);
  athread_join();
  athread_set_num_threads(kSlaves);
  athread_spawn(pass_on, NULL);
  athread_join();
  athread_spawn(take_turns, NULL);
  athread_join();
  for (int i = 0; i < kSlaves; ++i) {
    all += taken[i];
    timed += times[i] != 0;
    values += results[i].value;
    for (int j = 0; j < kTile; ++j) wrong += words[i][j] != j;
  }
  printf("tiles %d, last %g, sum %ld\n", all, tiles[kTiles * kTile - 1], sum);
  printf("matrix %g, times %d, values %g, ring %g\n", matrix[kSlaves + 7], timed,
         values, ring[kSlaves - 1]);
  printf("turns %ld %ld %ld, %d wrong\n", guarded[0], guarded[1], guarded[2], wrong);
  return 0;
}
