#pragma once
// Compiled for both sides: each must call its own copy.
template <class T>
__attribute__((noinline)) T square(T x) {
  return x * x;
}

struct Job {
  float* floats;
  double* doubles;
  int count;
};
