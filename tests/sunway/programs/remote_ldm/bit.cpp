#include <slave.h>
/* The bit of such addresses where other sources do not see it. */
const long kBit = 1L << 45;
long* const kBits[] = {(long*)kBit};
extern "C" void* far_place(void* p, int id) {
  return (char*)p + (1ul << 20) * id + (long)kBits[id < 0];
}
