// Functions of each element against their formulas, and refused arguments. The
// same bits on every machine are in operators_test.cpp.
#include "swamp/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "row_values.h"
#include "support/errors.h"

namespace swamp::test {
namespace {

float formula(const PointwiseOptions& o, float x, float z, float w) {
  const float d = std::min(std::max(x - z, -o.gamma), o.gamma);
  const float hard = std::min(std::max(x + 3, 0.0f), 6.0f);
  switch (o.function) {
    case Pointwise::clamp:
      return std::min(std::max(x, o.alpha), o.beta);
    case Pointwise::hard_swish:
      return x * hard / 6;
    case Pointwise::hard_sigmoid:
      return hard / 6;
    case Pointwise::leaky_relu:
      return x > 0 ? x : x * o.alpha;
    case Pointwise::affine:
      return x * o.alpha + o.beta;
    case Pointwise::sum:
      return x * o.alpha + z * o.beta;
    case Pointwise::product:
      return x * z;
    case Pointwise::difference:
      return d * o.alpha * o.beta;
    case Pointwise::loss:
      return std::abs(d) * o.alpha * (std::abs(x - z) - std::abs(d) / 2);
    case Pointwise::scaled_relu:
      return x > 0 ? x : x * z;
    case Pointwise::above:
      return x > o.alpha ? z : 0;
    case Pointwise::between:
      return o.alpha < x && x < o.beta ? z * o.gamma : 0;
    case Pointwise::maximum:
      return std::max(x, z);
    case Pointwise::minimum:
      return std::min(x, z);
    case Pointwise::lerp:
      // Of an alpha of -0.5.
      return z - (z - x) * (1 - o.alpha);
    case Pointwise::sum_of_product:
      return x + z * w * o.alpha;
    case Pointwise::sum_of_quotient:
      return x + z * o.alpha / w;
    case Pointwise::lerp_by:
      return std::abs(w) < 0.5f ? x + (z - x) * w : z - (z - x) * (1 - w);
    case Pointwise::difference_by:
      return d * o.alpha * w;
    default:
      return x > 0 ? z : z * o.alpha;
  }
}

TEST(Pointwise, Formulas) {
  for (const ScalarType type : {kFloat16, kBFloat16}) {
    for (int f = 0; f <= static_cast<int>(Pointwise::difference_by); ++f) {
      for (const std::size_t columns : {1u, 7u, 33u, 300u}) {
        const std::size_t rows = 5;
        const Values x(rows, columns, type, columns),
            z(rows, columns, type, columns + 1),
            w(rows, columns, type, columns + 2);
        std::vector<float> values(rows);
        for (std::size_t i = 0; i < rows; ++i) {
          values[i] = 0.3f - static_cast<float>(i);
        }
        PointwiseOptions options{static_cast<Pointwise>(f), -0.5f, 0.75f,
                                 0.625f};
        const bool has_second = options.function >= Pointwise::sum;
        const bool has_third = options.function >= Pointwise::sum_of_product;
        if (has_third) options.third = w.matrix.data;
        if (options.function == Pointwise::clamp) {
          options.alpha = -0.3f, options.beta = 0.7f;  // of no 16-bit dtype
        }
        const int places = has_second && !has_third ? 3 : 1;
        for (int where = 0; where < places; ++where) {
          if (has_second) {
            options.matrix = where == 0 ? z.matrix.data : nullptr;
            options.row = where == 1 ? z.matrix.data : nullptr;
            options.values = where == 2 ? values.data() : nullptr;
          }
          Values y(rows, columns, type), expected = y;
          pointwise(x.matrix, y.matrix, options);
          for (std::size_t i = 0; i < rows * columns; ++i) {
            const float second = where == 2
                                     ? values[i / columns]
                                     : widen(type, z.memory.data(),
                                             where == 1 ? i % columns : i);
            store_value(type, expected.memory.data(), i,
                        formula(options, widen(type, x.memory.data(), i),
                                second, widen(type, w.memory.data(), i)));
          }
          ASSERT_EQ(y.bits(), expected.bits())
              << kFloatFormats[type].name << " function " << f << " columns "
              << columns << " second " << where;
          if (!has_third) continue;
          Values over = w;
          options.third = over.matrix.data;
          pointwise(x.matrix, over.matrix, options);
          ASSERT_EQ(over.bits(), expected.bits()) << "over w, function " << f;
        }
      }
    }
  }
}

TEST(Pointwise, Errors) {
  Values x(4, 6, kFloat16, 1), y(4, 6, kFloat16), other(4, 7, kFloat16),
      wide(4, 6, kFloat32);
  PointwiseOptions two{Pointwise::sum};
  two.row = two.matrix = x.matrix.data;
  PointwiseOptions odd{Pointwise::sum};
  odd.row = static_cast<std::byte*>(x.matrix.data) + 1;
  PointwiseOptions no_third{Pointwise::sum_of_product};
  no_third.matrix = x.matrix.data;
  PointwiseOptions odd_third = no_third, third_of_two{Pointwise::sum};
  odd_third.third = odd.row;
  third_of_two.matrix = third_of_two.third = x.matrix.data;
  const PointwiseOptions clamp{Pointwise::clamp};
  expect_refused({
      {[&] { pointwise(wide.matrix, wide.matrix, clamp); },
       "x.dtype: got 2 (float32), expected", SWAMP_UNSUPPORTED},
      {[&] { pointwise(x.matrix, other.matrix, clamp); },
       "y.columns: got 7, expected 6 (as 'x' has)"},
      {[&] { pointwise(x.matrix, y.matrix, {static_cast<Pointwise>(20)}); },
       "options.function: got 20, expected one of Pointwise"},
      {[&] { pointwise(x.matrix, y.matrix, {Pointwise::sum}); },
       "options: got 0 of matrix, row and values, expected 1 with this"},
      {[&] { pointwise(x.matrix, y.matrix, two); },
       "options: got 2 of matrix, row and values, expected 1 with this"},
      {[&] { pointwise(x.matrix, y.matrix, no_third); },
       "options.third: got null, expected an address, with x and"},
      {[&] { pointwise(x.matrix, y.matrix, third_of_two); },
       "options.third: got an address, expected null with this function"},
      {[&] { pointwise(x.matrix, y.matrix, odd_third); },
       "options.third.data: got"},
      {[&] { pointwise(x.matrix, y.matrix, odd); },
       "options.row: got a misaligned address"},
  });
}

}  // namespace
}  // namespace swamp::test
