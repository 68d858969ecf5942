/* What the gallery's masters share: out is to become 2 * in + 1. */
#ifndef HOST_H
#define HOST_H

#include <athread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

double in[kCount] __attribute__((aligned(128)));
double out[kCount] __attribute__((aligned(128)));
long flag[kSlaves];

extern SLAVE_FUN(kernel)(args_t*);

static void begin(void) {
  for (int i = 0; i < kCount; ++i) in[i] = i;
  athread_init();
}

static int finish(void) {
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += out[i] != 2.0 * i + 1;
  printf("%s\n", wrong == 0 ? "right" : "wrong");
  athread_halt();
  return 0;
}

#endif
