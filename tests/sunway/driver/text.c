#include <simd.h>
void f(floatv8 v) { v = "text"; }
