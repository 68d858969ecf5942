#include <slave.h>
__thread_local int own;
void work(int* numbers) {
  own = _PEN;
  athread_ssync_array();
  const long next = (_PEN + 1) % 64;
  numbers[32 * _PEN + 1] = *(int*)((long)&own + (next << 20) + (1L << 45)) - 1;
  athread_ssync_array();
}
