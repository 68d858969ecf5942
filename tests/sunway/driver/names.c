#include <slave.h>
extern int first[8], second[8];
extern short third, fourth;
__thread_local int one = 1;
void work(int* numbers) {
#if KIND == 1
  if (_PEN == 2) athread_dma_put(&second[1], &one, 4);
  if (_PEN == 3) athread_dma_put(&second[3], &one, 4);
#elif KIND == 2
  if (_PEN == 4) third = 1;
  if (_PEN == 5) fourth = 1;
#else
  static long lock_word;
  athread_lock(&lock_word);
  fourth = _PEN;
  athread_unlock(&lock_word);
#endif
}
