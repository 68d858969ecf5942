#include <athread.h>

#include <cstdio>
#include <vector>

#include "shared.h"

extern "C" void slave_apply(Job*);
static double twice(double x) { return square(x) + x; }

int main() {
  std::vector<float> f(4096, 3.0f);
  std::vector<double> d(4096, 2.0);
  Job job = {f.data(), d.data(), 4096};
  athread_init();
  athread_spawn(SLAVE_FUN(apply), &job);
  athread_join();
  int wrong = 0;
  for (float x : f) wrong += x != 9.0f;
  for (double x : d) wrong += x != 4.0;
  std::printf("templates: %d wrong, %g\n", wrong, twice(3.0));
  athread_halt();
  return 0;
}
