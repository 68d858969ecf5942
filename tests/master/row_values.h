// What the tests of operators on rows share: elements and matrices of the three
// dtypes.
#ifndef SWAMP_TESTS_MASTER_ROW_VALUES_H_
#define SWAMP_TESTS_MASTER_ROW_VALUES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "support/formats.h"
#include "support/random.h"
#include "swamp/rows.h"

namespace swamp::test {

using Bytes = std::vector<std::byte>;

inline constexpr ScalarType kRowTypes[] = {kFloat16, kBFloat16, kFloat32};

inline float widen(ScalarType type, const void* data, std::size_t i) {
  const Format& format = format_of(type);
  return static_cast<float>(value_of(format, load_bits(format, data, i)));
}

inline void store_value(ScalarType type, void* data, std::size_t i,
                        float value) {
  store_bits(format_of(type), data, i, bits_of(format_of(type), value));
}

// Values is a matrix of ordinary numbers, and its memory.
struct Values {
  Bytes memory;
  Matrix matrix;

  Values(std::size_t rows, std::size_t columns, ScalarType type)
      : memory(rows * columns * format_of(type).bytes + 1),
        matrix{memory.data(), rows, columns, type} {}
  Values(std::size_t rows, std::size_t columns, ScalarType type,
         std::uint64_t seed)
      : Values(rows, columns, type) {
    Random random(seed);
    fill_ordinary(format_of(type), memory.data(), rows * columns, random);
  }
  Values(const Values& other) : memory(other.memory), matrix(other.matrix) {
    matrix.data = memory.data();
  }
  Values& operator=(const Values& other) {
    memory = other.memory;
    matrix = other.matrix;
    matrix.data = memory.data();
    return *this;
  }
  // bits() is the memory, with one pattern for all nan.
  Bytes bits() const {
    Values copy = *this;
    for (std::size_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      const float value = widen(matrix.dtype, memory.data(), i);
      if (value != value) {
        store_bits(format_of(matrix.dtype), copy.memory.data(), i,
                   format_of(matrix.dtype).quiet_nan());
      }
    }
    return copy.memory;
  }
  double operator()(std::size_t row, std::size_t column) const {
    return static_cast<double>(
        widen(matrix.dtype, memory.data(), row * matrix.columns + column));
  }
};

// with_special_rows() is ordinary rows, some with -inf, inf or nan, equal ones
// and wide ones.
inline Values with_special_rows(std::size_t rows, std::size_t columns,
                                ScalarType type, std::uint64_t seed) {
  Values x(rows, columns, type, seed);
  const float inf = std::numeric_limits<float>::infinity();
  const auto set = [&](std::size_t row, std::size_t begin, std::size_t end,
                       float value) {
    for (std::size_t j = begin; row < rows && j < end; ++j) {
      store_value(type, x.memory.data(), row * columns + j, value);
    }
  };
  const std::size_t at = columns * 5 / 7;
  set(1, 0, (columns + 1) / 2, -inf);
  set(2, at, at + 1, 80);
  set(3, at, at + 1, std::nanf(""));
  set(4, at, at + 1, inf);
  set(5, 0, columns, -inf);
  set(6, 0, columns, -1.5f);
  return x;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// bits_of() is bytes_of() with one pattern for all nan.
inline Bytes bits_of(std::vector<float> values) {
  for (float& value : values) {
    if (value != value) value = std::nanf("");
  }
  return bytes_of(values);
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_ROW_VALUES_H_
