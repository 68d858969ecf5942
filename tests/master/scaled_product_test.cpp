// Products of codes with scales: exact sums, the same bits on every machine,
// and the errors. The golden data are replayed by the program's tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "machines.h"
#include "row_values.h"
#include "support/errors.h"
#include "swamp/c_api.h"
#include "swamp/float8.h"

namespace swamp::test {
namespace {

using Octets = std::vector<std::uint8_t>;

// Operand is a matrix of codes, and its memory.
struct Operand {
  ScaledMatrix matrix;
  Octets codes, scales;
  std::vector<float> float_scales;

  Operand(ScalarType format, std::size_t rows, std::size_t columns) {
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.codes.dtype = format;
    matrix.codes.count = rows * columns / (format == kFloat4E2M1FNX2 ? 2 : 1);
  }
  const ScaledMatrix& view() {
    matrix.codes.data = codes.data();
    if (!float_scales.empty()) {
      matrix.scales = {float_scales.data(), float_scales.size(), kFloat32};
    } else {
      matrix.scales.data = scales.data();
      matrix.scales.count = scales.size();
    }
    return matrix;
  }
  float value(std::size_t row, std::size_t column) const {
    const std::size_t at = row * matrix.columns + column;
    const ScalarType format = matrix.codes.dtype;
    if (format != kFloat4E2M1FNX2) return code_to_float(format, codes[at]);
    const unsigned byte = codes[at / 2];
    return code_to_float(
        format, static_cast<std::uint8_t>(at % 2 == 0 ? byte & 15 : byte >> 4));
  }
  float scale(std::size_t row, std::size_t block, std::size_t steps) const {
    if (!float_scales.empty()) {
      if (float_scales.size() == 1) return float_scales[0];
      const std::size_t size = matrix.square ? matrix.block : 1;
      return float_scales[row / size * steps + block];
    }
    return code_to_float(matrix.scales.dtype, scales[row * steps + block]);
  }
};

swamp_scaled_matrix to_c(const ScaledMatrix& x) {
  return {sizeof(swamp_scaled_matrix),
          x.codes,
          x.scales,
          x.rows,
          x.columns,
          x.block,
          x.square ? 1 : 0,
          x.tensor_amax};
}

// on_each() checks the result of every machine, and that of the C function.
template <class Check>
void on_each(Operand& a, Operand& b, std::size_t rows, std::size_t columns,
             Check check) {
  on_all_machines(kRowShapes, [&](Machine& machine) {
    std::vector<float> out(rows * columns, 7.0f);
    product({out.data(), rows, columns, kFloat32}, a.view(), b.view(),
            &machine);
    check(out);
  });
  std::vector<float> out(rows * columns, 7.0f);
  const swamp_matrix result{out.data(), rows, columns, SWAMP_FLOAT32};
  const swamp_scaled_matrix x = to_c(a.view()), y = to_c(b.view());
  ASSERT_EQ(swamp_scaled_product(nullptr, &result, &x, &y), SWAMP_OK)
      << swamp_last_error();
  check(out);
}

// equal() checks the bits of a result.
auto equal(const std::vector<std::uint32_t>& expected) {
  return [&expected](const std::vector<float>& out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(float_to_bits(out[i]), expected[i]) << i;
    }
  };
}

struct Case {
  ScalarType a, b;
  std::size_t rows, columns, terms, block;
  ScalarType scales;  // float32: one for all without block
  bool b_square = false, any = false;
};

// expected_value() is an element; exact in long double for these numbers.
float expected_value(const Operand& a, const Operand& b, const Case& one,
                     std::size_t i, std::size_t j) {
  const std::size_t size = one.block == 0 ? one.terms : one.block;
  const std::size_t steps =
      one.block == 0 ? 1 : (one.terms + one.block - 1) / one.block;
  float y = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    long double sum = 0;
    for (std::size_t t = s * size; t < std::min((s + 1) * size, one.terms);
         ++t) {
      sum += static_cast<long double>(a.value(i, t)) *
             static_cast<long double>(b.value(j, t));
    }
    const float scale = a.scale(i, s, steps) * b.scale(j, s, steps);
    const float scaled = scale * static_cast<float>(sum);
    y = one.block == 0 ? scaled : y + scaled;
  }
  return y;
}

TEST(ScaledProduct, BitsOfPlainLoop) {
  const Case cases[] = {
      {kFloat8E4M3FN, kFloat8E4M3FN, 1, 1, 1, 0, kFloat32},
      {kFloat8E4M3FN, kFloat8E4M3FN, 13, 70, 301, 0, kFloat32},
      {kFloat8E4M3FN, kFloat8E5M2, 25, 33, 2050, 0, kFloat32},
      {kFloat8E5M2, kFloat8E5M2, 5, 40, 64, 0, kFloat32},
      {kFloat8E4M3FN, kFloat8E4M3FN, 14, 65, 1600, 128, kFloat32, true},
      {kFloat8E4M3FN, kFloat8E4M3FN, 12, 32, 320, 32, kFloat8E8M0FNU},
      {kFloat8E4M3FN, kFloat8E5M2, 7, 50, 111, 32, kFloat8E8M0FNU},
      {kFloat6E2M3FN, kFloat4E2M1FNX2, 6, 34, 90, 32, kFloat8E8M0FNU},
      {kHiFloat8, kHiFloat8, 8, 20, 77, 0, kFloat32},
      {kMxInt8, kMxInt8, 6, 34, 90, 32, kFloat8E8M0FNU},
      {kFloat8E4M3FN, kFloat8E4M3FN, 3, 40, 0, 0, kFloat32},
      {kFloat8E4M3FN, kFloat8E4M3FN, 3, 40, 0, 32, kFloat8E8M0FNU},
      {kFloat8E5M2, kFloat8E4M3FN, 4, 36, 50, 0, kFloat32, false, true},
      {kFloat8E5M2, kFloat8E4M3FN, 40, 36, 2, 0, kFloat32, false, true},
      {kFloat8E5M2, kFloat8E4M3FN, 30, 36, 12, 0, kFloat32, false, true},
      {kFloat8E4M3FN, kFloat8E5M2, 30, 36, 12, 0, kFloat32, false, true},
      {kFloat8E4M3FN, kFloat8E4M3FN, 0, 4, 8, 0, kFloat32},
  };
  Random random(91);
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message()
                 << kFloatFormats[one.a].name << " "
                 << kFloatFormats[one.b].name << " " << one.rows << " x "
                 << one.columns << " x " << one.terms << ", blocks of "
                 << one.block);
    Operand a(one.a, one.rows, one.terms), b(one.b, one.columns, one.terms);
    for (Operand* x : {&a, &b}) {
      x->codes.resize(x->matrix.codes.count);
      for (std::uint8_t& code : x->codes) {
        do {
          code = static_cast<std::uint8_t>(random.below(256));
          const float value = code_to_float(x->matrix.codes.dtype, code);
          // Sums of numbers from 2^-6 to 2^9 are exact in long double.
          if (one.any || x->matrix.codes.dtype == kFloat4E2M1FNX2) break;
          if (std::abs(value) >= 0x1p-6f && std::abs(value) < 0x1p9f) break;
        } while (true);
      }
      x->matrix.block = one.block;
      x->matrix.square = one.b_square && x == &b;
      const std::size_t size = x->matrix.square ? one.block : 1;
      const std::size_t steps =
          one.block == 0 ? 1 : (one.terms + one.block - 1) / one.block;
      const std::size_t count =
          one.block == 0 ? 1 : (x->matrix.rows + size - 1) / size * steps;
      x->matrix.scales.dtype = one.scales;
      for (std::size_t s = 0; s < count; ++s) {
        if (one.scales == kFloat32) {
          x->float_scales.push_back(1 + static_cast<float>(random.below(1000)) /
                                            999);
        } else {
          x->scales.push_back(
              static_cast<std::uint8_t>(120 + random.below(14)));
        }
      }
    }
    std::vector<std::uint32_t> expected;
    for (std::size_t i = 0; i < one.rows; ++i) {
      for (std::size_t j = 0; j < one.columns; ++j) {
        const float value = expected_value(a, b, one, i, j);
        expected.push_back(value != value ? 0x7fc00000u : float_to_bits(value));
      }
    }
    on_each(a, b, one.rows, one.columns, equal(expected));
    if (HasFailure()) return;
  }
}

// A code among zeros, times 1: its value, nan and inf too. The codes are those
// of a, and of b.
TEST(ScaledProduct, EveryCode) {
  for (const FloatFormat& format : kFloatFormats) {
    if (format.width != 8 || format.specials == Specials::exponent) continue;
    SCOPED_TRACE(format.name);
    std::uint8_t one = 0;
    while (code_to_float(format.type, one) != 1) ++one;
    constexpr std::size_t kTerms = 70;
    Operand codes(format.type, 256, kTerms), ones(format.type, 1, kTerms);
    codes.codes.assign(256 * kTerms, 0);
    ones.codes.assign(kTerms, one);
    codes.float_scales = ones.float_scales = {1.0f};
    std::vector<std::uint32_t> expected;
    for (unsigned code = 0; code < 256; ++code) {
      codes.codes[code * kTerms + code % kTerms] =
          static_cast<std::uint8_t>(code);
      const float value =
          code_to_float(format.type, static_cast<std::uint8_t>(code));
      expected.push_back(value != value ? 0x7fc00000u : float_to_bits(value));
      if (expected.back() << 1 == 0) expected.back() = 0;  // +0 + -0
    }
    on_each(codes, ones, 256, 1, equal(expected));
    on_each(ones, codes, 1, 256, equal(expected));
    if (HasFailure()) return;
  }
}

TEST(ScaledProduct, Errors) {
  struct Call {
    Matrix out;
    ScaledMatrix a, b;
  };
  const std::vector<Refusal<Call>> rows = {
      {[](Call& c) { c.a.columns = 6; }, "a.codes.count: got 24, expected 18"},
      {[](Call& c) { c.a.block = 3; },
       "a.block: got 3, expected an even number"},
      {[](Call& c) { c.a.block = 130; },
       "a.block: got 130, expected an even number of elements, at most 128, or "
       "0 for a row"},
      {[](Call& c) { c.b.block = std::size_t{1} << 62; },
       "b.block: got 4611686018427387904, expected an even number"},
      {[](Call& c) { c.a.block = ~std::size_t{1}, c.a.scales.count = 0; },
       "a.block: got 18446744073709551614, expected an even number"},
      {[](Call& c) { c.a.block = std::size_t{1} << 63, c.a.square = true; },
       "a.block: got 9223372036854775808, expected an even number"},
      {[](Call& c) { c.a.scales.count = 0; },
       "a.scales.count: got 0, expected 3, or 1 for all"},
      {[](Call& c) {
         for (ScaledMatrix* x : {&c.a, &c.b}) {
           x->codes.dtype = kFloat4E2M1FNX2, x->codes.count /= 2;
           x->scales.dtype = kFloat8E4M3FN;
         }
       },
       "a.tensor_amax: got nan, expected the largest magnitude"},
      {[](Call& c) { c.a.square = true; },
       "a.block: got 0, expected the rows of a square block"},
      {[](Call& c) { c.a.scales.count = 3, c.a.block = 4; },
       "a.scales.count: got 3, expected 6, or 1 for all"},
      {[](Call& c) { c.b.scales.dtype = kFloat16; }, "b.scales.dtype: got",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.b.codes.dtype = kFloat32; }, "b.codes.dtype: got",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.b.rows = 5, c.b.codes.count = 40; },
       "out.columns: got 4, expected 5 (as 'b' has rows)"},
      {[](Call& c) { c.a.rows = ~std::size_t{0} / 2; },
       "a.rows: got 9223372036854775807, expected at most "},
      {[](Call& c) { c.a.codes.dtype = kFloat4E2M1FNX2, c.a.columns = 7; },
       "a.columns: got 7, expected an even number"},
      {[](Call& c) { c.b.codes.dtype = kFloat8E8M0FNU; },
       "b.codes.dtype: got 12 (float8_e8m0fnu)", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.out.rows = 2; },
       "out.rows: got 2, expected 3 (as 'a' has)"},
      {[](Call& c) { c.b.codes.data = nullptr; }, "b.codes.data: got null"},
  };
  std::vector<float> values(64, 1.0f), out(12, 7.0f);
  Octets codes(64);
  Call good;
  good.out = {out.data(), 3, 4, kFloat32};
  good.a.codes = {codes.data(), 24, kFloat8E4M3FN};
  good.b.codes = {codes.data(), 32, kFloat8E4M3FN};
  good.a.scales = good.b.scales = {values.data(), 1, kFloat32};
  good.a.rows = 3, good.b.rows = 4, good.a.columns = good.b.columns = 8;
  product(good.out, good.a, good.b);  // is right before the change
  out.assign(12, 7.0f);
  expect_refusals(good, rows, [](Call& c) { product(c.out, c.a, c.b); });
  EXPECT_EQ(out, std::vector<float>(12, 7.0f));
}

}  // namespace
}  // namespace swamp::test
