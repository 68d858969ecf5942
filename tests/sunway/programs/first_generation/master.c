/* A program as it was written for SW26010, with its options and calls. */
#include <athread.h>
#include <stdio.h>

extern SLAVE_FUN(copy)();

typedef struct {
  float *from, *to;
  int rows, columns;
} job;

float from[16][512], to[16][512];

static inline unsigned long rpcc() {
  unsigned long time;
  asm("rtc %0" : "=r"(time) :);
  return time;
}

int main() {
  job j = {from[0], to[0], 16, 512};
  int i, k, wrong = 0;
  for (i = 0; i < 16; ++i)
    for (k = 0; k < 512; ++k) from[i][k] = i * 512 + k;
  athread_init();
  unsigned long begin = rpcc();
  __real_athread_spawn(slave_copy, &j);
  athread_join();
  unsigned long end = rpcc();
  for (i = 0; i < 16; ++i)
    for (k = 0; k < 512; ++k) wrong += to[i][k] != 3 * from[i][k];
  printf("%d wrong, %s\n", wrong, end > begin ? "some time" : "no time");
  athread_halt();
  return 0;
}
