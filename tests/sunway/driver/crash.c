#include <slave.h>
#include <string.h>
#include <sys/mman.h>
__thread_local int line[32];
int zero;
int deep(int n) {
  volatile char part[4096];
  part[0] = 1;
  return deep(n + 1) + part[0];
}
__attribute__((noinline)) void leaf(void) {
  volatile char all[1 << 20];
  all[0] = all[sizeof all - 1] = 1;
}
void work(int* numbers) {
  volatile int* at = numbers;
  if (_PEN != 7) return;
#if BUG == 1
  at[0] = at[(1l << 40)];
#elif BUG == 2
  at = (int*)16;
  at[0] = 1;
#elif BUG == 3
  at[0] = 7 / zero;
#elif BUG == 4
  at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, 9, 0);
  zero = at[0];
#elif BUG == 5
  memset((char*)numbers + (1l << 40), 0, 4000 + numbers[0]);
#elif BUG == 6
  athread_dma_get(line, (int*)64, 4);
#elif BUG == 7
  zero = deep(0);
#elif BUG == 8
  ((void (*)(void))(long)zero)();
#elif BUG == 9
  leaf();
#endif
}
