#include <athread.h>
#include <stdio.h>
extern SLAVE_FUN(work)(int*);
int numbers[64 * 32];
int main(void) {
  athread_init();
  athread_spawn(work, numbers);
  athread_join();
  printf("%d\n", numbers[32 * 5 + 1]);
  return 0;
}
