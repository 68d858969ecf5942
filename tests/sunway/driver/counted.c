#include <slave.h>
void direct(long* numbers) {
  if (numbers[_PEN] == 0 && _PEN == 0) numbers[0] = 1, numbers[64] = 2;
}
