#include <athread.h>

#include <cstdio>

#include "shape.h"
extern "C" void slave_work(int*);
int numbers[1] = {4};
int main() {
  athread_init();
  athread_spawn(SLAVE_FUN(work), numbers);
  athread_join();
  const Shape* volatile shape = new Shape;
  std::printf("%d\n", shape->sides(numbers));
  return 0;
}
