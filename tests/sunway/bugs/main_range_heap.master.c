#include "host.h"

int main(void) {
  begin();
  double* mine = (double*)malloc(kCount * sizeof(double));
#ifdef RIGHT
  double* copy = (double*)malloc(kCount * sizeof(double));
#else
  double* copy = (double*)malloc((kCount - 8) * sizeof(double));
#endif
  memcpy(mine, in, kCount * sizeof(double));
  args_t args = {mine, copy, flag};
  athread_spawn(kernel, &args);
  athread_join();
  memcpy(out, copy, (kCount - 8) * sizeof(double));
  for (int i = kCount - 8; i < kCount; ++i) out[i] = 2.0 * i + 1;
  free(mine);
  free(copy);
  return finish();
}
