#include <slave.h>
__thread_local int kept;
void set(int* numbers) { kept = _PEN; }
void work(int* numbers) {
  numbers[_PEN] = kept;
  kept = -1;
}
