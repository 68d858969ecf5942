#include <athread.h>
#include <stdio.h>

#include "common.h"

double in[kCount] __attribute__((aligned(128)));
double later[kCount] __attribute__((aligned(128)));
double out[kCount] __attribute__((aligned(128)));
long flag[kSlaves];

extern SLAVE_FUN(kernel)(args_t*);

int main(void) {
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) in[i] = i;
  athread_init();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
#ifndef RIGHT
  args.in = later;
#endif
  athread_join();
  for (int i = 0; i < kCount; ++i) wrong += out[i] != 2.0 * i + 1;
  printf("%s\n", wrong == 0 ? "right" : "wrong");
  athread_halt();
  return 0;
}
