#include <simd.h>
void f(void) {
  floatv8 v = 1.0;
  asm("memb; sync %0" ::"r"(255));
  missing = v;
}
