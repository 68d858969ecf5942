// The 8-bit codes of block-wise moments: bitsandbytes' dynamic map
// (functional.create_dynamic_map), as formulas: a value is the code's value
// times absmax of its block; and float8_e4m3fn: a value is the code's value
// times float8_scale(absmax).
#ifndef SWAMP_SLAVE_BLOCK_CODE_H_
#define SWAMP_SLAVE_BLOCK_CODE_H_

#include <cstdint>

#include "swamp/float_formats.h"

namespace swamp::slave {

// The map divides each decade j into 2^j equal parts, and a number c = 2^j + k
// is the middle of part k of decade j. The signed map (of m) has the code
// 127 + c for a positive number and 127 - c for a negative one: c = 0 is 0,
// c = 128 is 1, and there is no -1. The unsigned map (of v) has the code c - 1:
// c = 1 is 0 and c = 256 is 1.
//
// A value gets the nearest code, but a v above 0 at least the code 1: with v =
// 0 beside an m that is not, the next step would divide by eps alone.
//
// DecadeTables has one entry per decade; j = 8 of the unsigned map has none.
struct DecadeTables {
  static constexpr int kDecades = 8;
  // The number c is low[j] + step[j] * k.
  alignas(32) float low[kDecades];
  alignas(32) float step[kDecades];
  // A value x, divided by absmax, has the number
  // floor(min(x * parts[j] + offset[j], last[j])) if it is at least
  // threshold[j], the middle between the last number of the decade before and
  // the first of this one.
  alignas(32) float parts[kDecades];
  alignas(32) float offset[kDecades];
  alignas(32) float last[kDecades];
  alignas(32) float threshold[kDecades];
  float one;  // values of at least this are 1
};

// decade_tables() makes the tables of the map whose last decade, that below 1,
// is `last`.
constexpr DecadeTables decade_tables(int last) {
  DecadeTables tables{};
  double end = 1e-6;  // of decade last - 6
  for (int j = last - 6; j <= last; ++j, end *= 10) {
    const double count = 1 << j;
    tables.low[j] = static_cast<float>(end * (0.1 + 0.45 / count));
    tables.step[j] = static_cast<float>(end * 0.9 / count);
    tables.parts[j] = static_cast<float>(count / (end * 0.9));
    tables.offset[j] = static_cast<float>(count - count / 9);
    tables.last[j] = static_cast<float>(2 * count - 1);
    tables.threshold[j] =
        static_cast<float>(j == last - 6 ? end * (0.05 + 0.225 / count)
                                         : end * (0.1 + 0.18 / count));
  }
  tables.one = static_cast<float>(1 - 0.225 / (1 << last));
  return tables;
}

constexpr DecadeTables signed_tables() {
  DecadeTables tables = decade_tables(6);
  tables.low[7] = 1;
  tables.offset[7] = tables.last[7] = 128;
  tables.threshold[7] = tables.one;
  return tables;
}

constexpr DecadeTables unsigned_tables() {
  DecadeTables tables = decade_tables(7);
  tables.offset[0] = tables.last[0] = 1;
  return tables;
}

// Returns 1 / absmax, the factor that scales a block to [-1, 1]; a product
// above 1, or nan, counts as 1.
inline float block_unit(float absmax) noexcept {
  const float unit = 1 / absmax;
  // The inverse of 0, and of some subnormal numbers, is inf.
  return float_to_bits(unit) == 0x7f800000 ? 0x1.fffffep127f : unit;
}

// float8_scale() returns the scale of a block of float8_e4m3fn moments. A code
// is f32(value / scale), rounded to nearest even; nan is 0x7f. This is
// quantize_fp8() of torchao/optim/subclass_fp8.py: a v far below the largest of
// its block becomes 0.
inline float float8_scale(float absmax) noexcept {
  return (absmax < 1e-12f ? 1e-12f : absmax) / 448.0f;
}

inline constexpr DecadeTables kSignedTables = signed_tables();
inline constexpr DecadeTables kUnsignedTables = unsigned_tables();

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_BLOCK_CODE_H_
