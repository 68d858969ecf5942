// How the scalar references load and store an element of each format.
#ifndef SWAMP_SLAVE_REFERENCE_FORMATS_H_
#define SWAMP_SLAVE_REFERENCE_FORMATS_H_

#include <cstdint>

#include "swamp/float_formats.h"

namespace swamp::slave::reference {

struct Float16 {
  using Storage = std::uint16_t;
  static float load(Storage x) { return float16_to_float(x); }
  static Storage store(float x) { return float16_from_float(x); }
};
struct BFloat16 {
  using Storage = std::uint16_t;
  static float load(Storage x) { return bfloat16_to_float(x); }
  static Storage store(float x) { return bfloat16_from_float(x); }
};
struct Float32 {
  using Storage = float;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};
struct Float64 {
  using Storage = double;
  static double load(double x) { return x; }
  static double store(double x) { return x; }
};

}  // namespace swamp::slave::reference

#endif  // SWAMP_SLAVE_REFERENCE_FORMATS_H_
