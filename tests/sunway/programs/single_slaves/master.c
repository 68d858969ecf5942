#include <athread.h>
#include <stdio.h>

int results[4];
extern void SLAVE_FUN(one)(void*);

int main(void) {
  athread_init();
  for (int i = 0; i < 4; ++i) athread_create(i, one, (void*)(long)(i * 10));
  for (int i = 0; i < 4; ++i) athread_wait(i);
  printf("%d %d %d %d\n", results[0], results[1], results[2], results[3]);
  athread_set_num_threads(1);
  athread_spawn(one, (void*)5);
  athread_join();
  printf("%d of %d\n", results[0], athread_get_max_threads());
  athread_halt();
  return 0;
}
