#ifdef __sw_slave__
#include <slave.h>
#else
#include <athread.h>
#include <stdio.h>
#include <stdlib.h>
#endif
__uncached long total; /* of both sides */
#ifdef __sw_slave__
#ifndef MORE
#define MORE
#endif
static __uncached int64_t lock_word;
__uncached double more MORE;
void work(long* at) {
#ifdef LOCAL
  __uncached long* sum = &total;
#elif defined CAST
  long* sum = (__uncached long*)&total;
#else
  long* sum = at != 0 ? at : &total;
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
  long* at = 0;
#ifdef HEAP
  /* In memory that was uncached, if the heap gives it at once. */
  for (long *last = 0, i = 0; i < 50 && (at == 0 || at != last); ++i) {
    last = libc_uncached_malloc(2000);
    libc_uncached_free(last);
    at = HEAP(BYTES);
  }
  at += BYTES / sizeof *at - 1;
  *at = 5;
#endif
  athread_init();
  athread_spawn(work, at);
  athread_join();
  printf("%ld\n", at != 0 ? *at : total);
  return 0;
}
#endif
