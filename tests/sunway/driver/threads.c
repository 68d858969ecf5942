#include <slave.h>
void f(double* a) {
#pragma omp parallel for
  for (int i = 0; i < 64; ++i) a[i] = i;
}
