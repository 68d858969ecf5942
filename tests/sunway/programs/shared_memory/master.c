/* Memory shared with other processes: check mode must not repeat the launch. */
#include <athread.h>
#include <stdio.h>
#include <sys/mman.h>

extern SLAVE_FUN(count)(long*);

int main(void) {
  long* sum = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  athread_init();
  athread_spawn(count, sum);
  athread_join();
  printf("shared_memory: %ld\n", *sum);
  athread_halt();
  return 0;
}
