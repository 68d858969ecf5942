#include <athread.h>
#include <stdio.h>

int data[64], result;
volatile int ready[64];
volatile int started; /* the master reads it, too */
long word, total;
int same;
typedef struct {
  char kind;
  double value;
} padded_t;
padded_t padded[64];
extern void SLAVE_FUN(relay)(void*);

int main(void) {
  int wrong = 0;
  athread_init();
  athread_spawn(relay, 0);
  while (started == 0);
  athread_join();
  for (int i = 0; i < 64; ++i) wrong += padded[i].value != i;
  printf("flags: %d %ld %d %d\n", result, total, same, wrong);
  athread_halt();
  return 0;
}
