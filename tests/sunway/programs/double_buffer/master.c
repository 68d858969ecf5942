#include <athread.h>
#include <stdio.h>
#include <stdlib.h>

#define N (1 << 18)
typedef struct {
  float *x, *y;
  float a;
  int n;
} para_t;

extern void SLAVE_FUN(saxpy)(para_t*);

int main(void) {
  float* x = (float*)libc_aligned_malloc(N * sizeof(float));
  float* y = (float*)libc_aligned_malloc(N * sizeof(float));
  para_t para = {x, y, 0.5f, N};
  int wrong = 0;
  for (int i = 0; i < N; ++i) {
    x[i] = i;
    y[i] = 1;
  }
  athread_init();
  for (int launch = 0; launch < 3; ++launch) {
    athread_spawn(saxpy, &para);
    athread_join();
  }
  for (int i = 0; i < N; ++i) wrong += y[i] != 1 + 1.5f * i;
  printf("saxpy: %d wrong\n", wrong);
  libc_aligned_free(x);
  libc_aligned_free(y);
  athread_halt();
  return 0;
}
