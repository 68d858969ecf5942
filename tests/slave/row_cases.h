// Rows to try row kernels with, and comparisons of what they give.
#ifndef SWAMP_TESTS_SLAVE_ROW_CASES_H_
#define SWAMP_TESTS_SLAVE_ROW_CASES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "slave/kernel_list.h"
#include "slave/reference_table.h"
#include "slave/row_args.h"
#include "support/formats.h"
#include "support/random.h"
#include "swamp/float_formats.h"

namespace swamp::test {

using F = KernelFamily;
using slave::kernel_of;

// row_tables() returns the tables that this CPU can run, the references first.
inline const std::vector<KernelTable>& row_tables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> all = {
        {"reference", true, slave::reference::reference_rows()}};
    const KernelTables compiled = kernel_tables();
    for (std::size_t i = 0; i < compiled.count; ++i) {
      if (compiled.tables[i].runnable) all.push_back(compiled.tables[i]);
    }
    return all;
  }();
  return tables;
}

inline constexpr std::size_t kRowLengths[] = {
    1,   2,    17,   31,   32,   33,   63,    64,   65,
    129, 1000, 1024, 4095, 4096, 4097, 16384, 50257};
inline constexpr ScalarType kRowTypes[] = {kFloat16, kBFloat16, kFloat32};

// Data is elements of one type, aligned to a line.
class Data {
 public:
  Data(ScalarType type, std::size_t count)
      : type_(type),
        count_(count),
        bytes_(count * kFloatFormats[type].bytes),
        storage_(bytes_ / sizeof(Line) + 2) {}

  ScalarType type() const { return type_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return bytes_; }
  std::uint8_t* data() { return storage_[0].bytes; }
  const std::uint8_t* data() const { return storage_[0].bytes; }
  void* at(std::size_t i) { return data() + i * kFloatFormats[type_].bytes; }
  double value(std::size_t i) const {
    return value_of(format(), load_bits(format(), data(), i));
  }
  void set(std::size_t i, float value) {
    store_bits(format(), data(), i, bits_of(format(), value));
  }
  bool intact() const {
    for (std::size_t i = bytes_; i < storage_.size() * sizeof(Line); ++i) {
      if (data()[i] != 0x5a) return false;
    }
    return true;
  }
  // The element's bits, with one pattern for all nan.
  std::uint64_t bits(std::size_t i) const {
    if (format().is_nan(load_bits(format(), data(), i))) return 0x7fffffff;
    return load_bits(format(), data(), i);
  }

 private:
  const Format& format() const { return format_of(type_); }

  struct alignas(64) Line {
    Line() { std::memset(bytes, 0x5a, sizeof bytes); }
    std::uint8_t bytes[64];
  };
  ScalarType type_;
  std::size_t count_, bytes_;
  std::vector<Line> storage_;
};

inline testing::AssertionResult same_bits(const Data& actual,
                                          const Data& expected) {
  for (std::size_t i = 0; i < expected.count(); ++i) {
    if (actual.bits(i) != expected.bits(i)) {
      return testing::AssertionFailure()
             << "element " << i << ": " << actual.value(i) << " expected "
             << expected.value(i);
    }
  }
  if (!actual.intact()) return testing::AssertionFailure() << "wrote beyond";
  return testing::AssertionSuccess();
}

// normal() is roughly a standard normal number.
inline float normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) {
    sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
  }
  return static_cast<float>(sum);
}

// Kinds of rows.
enum RowKind {
  ordinary,
  wide,
  equal,
  with_minus_inf,
  minus_inf_first_half,
  with_nan,
  with_inf,
  only_minus_inf,
  kRowKinds
};

inline void fill_row(Data& data, std::size_t start, std::size_t columns,
                     int kind, Random& random) {
  const float inf = std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < columns; ++j) {
    float value = normal(random) * (kind == wide ? 40.0f : 2.0f);
    if (kind == equal) value = -1.5f;
    if (kind == with_minus_inf && random.below(3) == 0) value = -inf;
    if (kind == minus_inf_first_half && j < columns / 2) value = -inf;
    if (kind == only_minus_inf) value = -inf;
    data.set(start + j, value);
  }
  const std::size_t at = start + random.below(columns);
  if (kind == with_nan) data.set(at, std::nanf(""));
  if (kind == with_inf) data.set(at, inf);
}

inline Data filled_rows(ScalarType type, std::size_t rows, std::size_t columns,
                        Random& random, int first_kind = 0) {
  Data data(type, rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    fill_row(data, row * columns, columns,
             (first_kind + static_cast<int>(row)) % kRowKinds, random);
  }
  return data;
}

// run_rows() runs kernel `id` of a table, on whole rows.
inline void run_rows(const KernelTable& table, int id, const void* args,
                     const std::vector<void*>& operands, std::size_t count,
                     std::size_t first, void* partial = nullptr,
                     bool hints = false, float* scratch = nullptr,
                     void* state = nullptr, const Operand* layout = nullptr) {
  Tile tile;
  tile.layout = layout;
  tile.state = state;
  tile.scratch = scratch;
  tile.operands = operands.data();
  tile.count = count;
  tile.first = first;
  tile.partial = partial;
  tile.prefetch_bytes = hints ? 512 : 0;
  tile.non_temporal = hints;
  Result result;
  (*table.rows[id].function)(args, tile, result);
  EXPECT_EQ(result.flagged_elements, 0u);
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SLAVE_ROW_CASES_H_
