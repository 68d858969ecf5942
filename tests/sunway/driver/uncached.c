#ifdef __sw_slave__
#include <slave.h>
#else
#include <athread.h>
#include <stdio.h>
#endif
__uncached long total; /* of both sides */
#ifdef __sw_slave__
#ifndef MORE
#define MORE
#endif
static __uncached int64_t lock_word;
__uncached double more MORE;
void work(void* unused) {
#ifdef LOCAL
  __uncached long* sum = &total;
#elif defined CAST
  long* sum = (__uncached long*)&total;
#else
  long* sum = &total;
#endif
  for (int i = 0; i < 3; ++i) {
    CRTS_mutex_lock(&lock_word);
    *sum += _PEN;
    CRTS_mutex_unlock(&lock_word);
  }
}
#else
__uncached long total = 5;
extern SLAVE_FUN(work)(void*);
int main(void) {
  athread_init();
  athread_spawn(work, 0);
  athread_join();
  printf("%ld\n", total);
  return 0;
}
#endif
