#define N 64000
typedef struct {
  double* x;
  double* y;
  double* sum;
} job;
