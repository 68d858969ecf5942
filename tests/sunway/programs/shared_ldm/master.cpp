// A vector in LDM that all slaves address. The name of the slave function has the
// prefix slave_ in the source, and C++ calls it.
#include <crts.h>

#include <vector>

#include "shared.h"

extern "C" void slave_reverse(job*);

int main() {
  std::vector<double> x(N), y(N);
  double sum = 0;
  for (int i = 0; i < N; ++i) x[i] = i;
  job j = {x.data(), y.data(), &sum};
  CRTS_init();
  int wrong = 0;
  for (int launch = 0; launch < 2; ++launch) {
    athread_spawn(slave_reverse, &j);
    athread_join();
    for (int i = 0; i < N; ++i) wrong += y[i] != x[N - 1 - i];
  }
  printf("%d wrong, sum %.0f\n", wrong, sum);
  return 0;
}
