#include <athread.h>
#include <stdio.h>
#include <unistd.h>
extern SLAVE_FUN(set)(int*), SLAVE_FUN(work)(int*);
int numbers[64];
int main(void) {
  athread_init();
  athread_spawn(set, numbers);
  athread_join();
  for (int file = 3; file < 1000; ++file) close(file);
  athread_spawn(work, numbers);
  athread_join();
  printf("%d\n", numbers[5]);
  return 0;
}
