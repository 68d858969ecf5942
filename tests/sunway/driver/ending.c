#define _GNU_SOURCE
#include <athread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
extern SLAVE_FUN(work)(double*);
enum { kBytes = 8 << 20 };
volatile int started;
int main(void) {
  athread_init();
  athread_spawn(work, mmap(0, kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
#ifdef HALT
  athread_halt();
#endif
  while (!started)
    ;
  usleep(20000);
#ifdef JOIN
  athread_join();
#endif
  END;
}
