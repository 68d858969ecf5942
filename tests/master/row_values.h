// What the tests of operators on rows share: elements and matrices of the three
// dtypes, and the comparison of machines.
#ifndef SWAMP_TESTS_MASTER_ROW_VALUES_H_
#define SWAMP_TESTS_MASTER_ROW_VALUES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "machines.h"
#include "runtime/memory_check.h"
#include "support/formats.h"
#include "support/random.h"
#include "swamp/rows.h"

namespace swamp::test {

using Bytes = std::vector<std::byte>;

// They give one visit with one tile or several, and two visits.
inline const std::vector<MachineShape> kRowShapes = {
    {1, 3, 64 * 1024}, {1, 2, 256 * 1024}, {6, 64, 64 * 1024}};
inline constexpr ScalarType kRowTypes[] = {kFloat16, kBFloat16, kFloat32};

inline float widen(ScalarType type, const void* data, std::size_t i) {
  const std::uint64_t bits = load_bits(format_of(type), data, i);
  if (type == kFloat16) {
    return float16_to_float(static_cast<std::uint16_t>(bits));
  }
  if (type == kBFloat16) {
    return bfloat16_to_float(static_cast<std::uint16_t>(bits));
  }
  return float_from_bits(static_cast<std::uint32_t>(bits));
}

inline void store_value(ScalarType type, void* data, std::size_t i,
                        float value) {
  const std::uint32_t bits = type == kFloat32   ? float_to_bits(value)
                             : type == kFloat16 ? float16_from_float(value)
                                                : bfloat16_from_float(value);
  store_bits(format_of(type), data, i, bits);
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
  double operator()(std::size_t row, std::size_t column) const {
    return static_cast<double>(
        widen(matrix.dtype, memory.data(), row * matrix.columns + column));
  }
};

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// on_row_machines() runs `body` on every machine of the shapes, and expects no
// report of the checker.
template <class Body>
void on_row_machines(Body body,
                     const std::vector<MachineShape>& shapes = kRowShapes) {
  const std::size_t reports = runtime::report_count();
  on_machines(shapes, false, body);
  EXPECT_EQ(runtime::report_count(), reports);
}

// expect_same() runs `call` on the default machine and on every machine of the
// shapes, and compares the memory of the outputs that it returns.
template <class Call>
std::vector<Bytes> expect_same(
    Call call, const std::vector<MachineShape>& shapes = kRowShapes) {
  Machine plain(MachineConfig{});
  const std::vector<Bytes> expected = call(plain);
  on_row_machines(
      [&](Machine& machine) { EXPECT_TRUE(call(machine) == expected); },
      shapes);
  return expected;
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_ROW_VALUES_H_
