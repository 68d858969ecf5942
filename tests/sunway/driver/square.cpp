#include "shape.h"
extern "C" void work(int* numbers) {
  Shape shape;
  const Shape* volatile any = &shape;
  if (any->sides(numbers) != 4) __builtin_trap();
}
