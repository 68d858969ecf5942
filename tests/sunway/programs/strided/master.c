#include <athread.h>
#include <stdio.h>

#define N 256
double in[N][N] __attribute__((aligned(128)));
double out[N][N] __attribute__((aligned(128)));

extern void SLAVE_FUN(transpose)(void*);

int main() {
  int wrong = 0;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) in[i][j] = i * N + j;
  athread_init();
  athread_spawn(transpose, 0);
  athread_join();
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) wrong += out[j][i] != i * N + j;
  printf("transpose: %d wrong\n", wrong);
  return 0;
}
