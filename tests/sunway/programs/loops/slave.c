#include <slave.h>

__thread_local double x[256], y[256], matrix[32][32];
__thread_local short halves[256];
__thread_local unsigned char bytes[256];
__thread_local struct {
  double u, v;
  int w;
} records[64];
__thread_local volatile int count;

/* Loops whose addresses are known before them. */
static double known(const double* main, int n) {
  double sum = 0;
  for (int i = n - 1; i >= 0; --i) x[i] += y[n - 1 - i];
  for (int i = 0; i < n; ++i) {
    if (x[i] > 70) x[i] = -x[i] / 2;
  }
  for (unsigned i = 0; i < (unsigned)n; ++i) sum += halves[2 * i] * bytes[i];
  for (int j = 0; j < 32; ++j) {
    for (int i = 0; i < 32; ++i) sum += matrix[i][j] * matrix[j][i];
  }
  for (int i = 0; i < n; ++i) {
    records[i].u += records[i].v;
    records[i].w ^= 3;
    sum += records[i].u * records[i].w;
  }
  for (int i = 0; i < n; ++i) sum += main[i];
  for (int i = n; i > 0; --i) sum -= main[i] * x[i];
  return sum;
}

/* Others: a second exit, gaps in main memory, stores there, an index that wraps
 * around, one that is no multiple of i, a pointer from one loop to the next. */
static double other(double* main, int n) {
  double sum = 0;
  double* p = x;
  double* const q = x + n;
  for (int i = 0; i < n; ++i) {
    sum += x[i];
    if (sum > 1e9) break;
  }
  for (int i = 0; i < n; ++i) sum += main[2 * i];
  for (long i = 0; i < n; i += 3) main[i] += x[i];
  for (unsigned char i = 200; i != 10; ++i) sum += y[i];
  for (int i = 0; i < n; ++i) sum += matrix[i / 2][i % 32] + x[i * n / 17];
  while (p != q) {
    sum += *p;
    *p++ = sum;
  }
  for (int i = 0; i < n; ++i) *p++ = i;
  return sum + x[2 * n - 1];
}

void work(double* numbers) {
  double* const main = numbers + _PEN * 256;
  for (int i = 0; i < 256; ++i) {
    x[i] = i;
    y[i] = 2 * i;
    halves[i] = i;
    bytes[i] = i;
  }
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 32; ++j) matrix[i][j] = i - 2 * j;
  }
  for (int i = 0; i < 64; ++i) {
    records[i].u = records[i].w = i;
    records[i].v = 1;
  }
  count = 64;
  for (int again = 0; again < 2; ++again) {
    main[255] = known(main, count) + other(main, count) / 1024;
  }
}
