#include <slave.h>

#define N 256
#define B 32
extern double in[N][N], out[N][N];
static __thread_local double tile[B][B] __attribute__((aligned(128)));
static __thread_local double turned[B][B] __attribute__((aligned(128)));

void transpose(void* unused) {
  volatile int reply = 0; /* on the stack */
  const int row = _ROW * B, col = _COL * B;
  const int block = B * sizeof(double), gap = (N - B) * sizeof(double);
  athread_dma_iget_stride(tile, &in[row][col], sizeof tile, block, gap,
                          (void*)&reply);
  athread_dma_wait_value((void*)&reply, 1);
  for (int i = 0; i < B; ++i)
    for (int j = 0; j < B; ++j) turned[j][i] = tile[i][j];
  athread_dma_put_stride(&out[col][row], turned, sizeof turned, block, gap);
}
