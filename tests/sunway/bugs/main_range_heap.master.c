#include <athread.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

double in[kCount] __attribute__((aligned(128)));
double out[kCount] __attribute__((aligned(128)));
long flag[kSlaves];

extern SLAVE_FUN(kernel)(args_t*);

int main(void) {
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) in[i] = i;
  athread_init();
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
  for (int i = 0; i < kCount; ++i) wrong += out[i] != 2.0 * i + 1;
  printf("%s\n", wrong == 0 ? "right" : "wrong");
  athread_halt();
  return 0;
}
