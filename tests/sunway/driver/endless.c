#include <slave.h>
__thread_local int line[32];
void work(int* numbers) {
  for (unsigned i = _PEN; i >= 63;) ++line[i % 32];
}
