#include "host.h"

int main(void) {
  begin();
  double* mine = (double*)malloc(kCount * sizeof(double));
  memcpy(mine, in, kCount * sizeof(double));
  args_t args = {mine, out, flag};
#ifndef RIGHT
  free(mine);
#endif
  athread_spawn(kernel, &args);
  athread_join();
#ifdef RIGHT
  free(mine);
#endif
  return finish();
}
