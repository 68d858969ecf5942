#include <simd.h>
#include <slave.h>

#define N 128
#define B 16
extern float a[N][N], b[N][N], c[N][N];
__thread_local float mine_a[B][B], mine_b[B][B], mine_c[B][B];
__thread_local float row_a[B][B] __attribute__((aligned(64)));
__thread_local float col_b[B][B] __attribute__((aligned(64)));
__thread_local crts_rply_t rply_a, rply_b, sent;

void gemm() {
  const int r = _ROW * B, q = _COL * B;
  const int block = B * sizeof(float), gap = (N - B) * sizeof(float);
  CRTS_dma_get_stride(mine_a, &a[r][q], sizeof mine_a, block, gap);
  CRTS_dma_get_stride(mine_b, &b[r][q], sizeof mine_b, block, gap);
  for (int i = 0; i < B; ++i)
    for (int j = 0; j < B; ++j) mine_c[i][j] = 0;
  for (int k = 0; k < 8; ++k) {
    rply_a = 0;
    rply_b = 0;
    CRTS_ssync_array();
    if (_COL == k)
      CRTS_rma_row_ibcast(row_a, mine_a, sizeof row_a, 0, &rply_a);
    if (_ROW == k) {
      sent = 0;
      CRTS_rma_col_ibcast(col_b, mine_b, sizeof col_b, &sent, &rply_b);
      CRTS_rma_wait_value(&sent, 1);
    }
    CRTS_rma_wait_value(&rply_a, 1);
    CRTS_rma_wait_value(&rply_b, 1);
    for (int i = 0; i < B; ++i)
      for (int l = 0; l < B; ++l)
        for (int j = 0; j < B; j += 8) {
          floatv8 vb, vc, va = simd_vcpyfs(row_a[i][l]);
          simd_load(vb, &col_b[l][j]);
          simd_loadu(vc, &mine_c[i][j]);
          vc = simd_vmas(va, vb, vc);
          simd_storeu(vc, &mine_c[i][j]);
        }
  }
  CRTS_dma_put_stride(&c[r][q], mine_c, sizeof mine_c, block, gap);
}
