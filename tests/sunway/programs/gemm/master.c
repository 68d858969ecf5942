#include <athread.h>
#include <stdio.h>

#define N 128
float a[N][N], b[N][N], c[N][N];
extern void SLAVE_FUN(gemm)();

int main(void) {
  int wrong = 0;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      a[i][j] = (i + j) % 7;
      b[i][j] = (i * 3 + j) % 5;
    }
  athread_init();
  athread_spawn(gemm, 0);
  athread_join();
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = 0;
      for (int k = 0; k < N; ++k) sum += a[i][k] * b[k][j];
      wrong += c[i][j] != sum;
    }
  printf("gemm: %d wrong\n", wrong);
  athread_halt();
  return 0;
}
