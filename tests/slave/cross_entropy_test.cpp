// The cross-entropy kernels: the bits of the reference on every ISA, in one
// visit and in two, and an oracle of higher precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "row_cases.h"

namespace swamp::test {
namespace {

using slave::CrossEntropyArgs;
using slave::CrossEntropyChunk;
using slave::CrossEntropyParts;
using slave::CrossEntropyRow;
using slave::kChunkColumns;

constexpr std::int64_t kIgnored = -100;

struct CrossEntropy {
  CrossEntropyArgs args;
  Data x;
  std::vector<std::int64_t> wide_targets;
  std::vector<std::int32_t> narrow_targets;
  std::vector<float> weights;  // empty: none

  std::size_t rows() const { return wide_targets.size(); }
  void* target(std::size_t row) {
    if (args.target_bytes == 4) return &narrow_targets[row];
    return &wide_targets[row];
  }
  float* weight(std::size_t column) {
    return weights.empty() ? nullptr : &weights[column];
  }
  int id(F family) const { return kernel_of(family, {x.type()}); }
};

CrossEntropy cross_entropy_case(ScalarType type, std::size_t columns,
                                int variant, Random& random) {
  const std::size_t rows = columns > 4097 ? 3 : 9;
  CrossEntropy one{{columns, 0, kIgnored, 1, 0, static_cast<double>(columns), 0,
                    variant % 2 == 0 ? 8u : 4u, 0},
                   filled_rows(type, rows, columns, random,
                               static_cast<int>(random.below(kRowKinds))),
                   {},
                   {},
                   {}};
  CrossEntropyArgs& args = one.args;
  if (variant == 1 || variant == 3) {
    args.confidence = 1 - 0.1;
    args.uniform = 0.1 / static_cast<double>(columns);
  }
  if (variant >= 2) {
    args.weight_sum = 0;
    for (std::size_t j = 0; j < columns; ++j) {
      one.weights.push_back(static_cast<float>(random.below(16)) / 8);
      args.weight_sum += one.weights[j];
    }
  }
  if (variant == 3) args.z_loss = 1e-3;
  if (variant == 4) args.first_class = static_cast<std::int64_t>(columns);
  for (std::size_t row = 0; row < rows; ++row) {
    one.wide_targets.push_back(
        row == 1 ? kIgnored
                 : static_cast<std::int64_t>(
                       random.below(variant == 4 ? 3 * columns : columns)));
    one.narrow_targets.push_back(
        static_cast<std::int32_t>(one.wide_targets[row]));
  }
  return one;
}

struct Losses {
  Data loss, lse;
  std::vector<CrossEntropyParts> parts;
};

Losses forward(CrossEntropy one, const KernelTable& table) {
  const std::size_t rows = one.rows();
  Losses result{{kFloat32, rows}, {kFloat32, rows}, {}};
  run_rows(table, one.id(F::cross_entropy), &one.args,
           {one.x.data(), one.target(0), one.weight(0), result.loss.data(),
            result.lse.data()},
           rows, 0, nullptr, true);
  const std::size_t columns = one.args.columns;
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<CrossEntropyChunk> chunks(columns / kChunkColumns + 1);
    for (std::size_t at = 0; at < columns; at += 2 * kChunkColumns) {
      run_pass(Pass::sum, table, one.id(F::cross_entropy), &one.args,
               {one.x.at(row * columns + at), nullptr, one.weight(at), nullptr,
                nullptr},
               std::min(columns - at, 2 * kChunkColumns), at,
               &chunks[at / kChunkColumns]);
    }
    result.parts.push_back(slave::combine_chunks(
        chunks.data(), (columns + kChunkColumns - 1) / kChunkColumns));
  }
  return result;
}

// expect_same_sums() compares what the passes of two tables gather, and the lse
// of passes with that of whole rows.
void expect_same_sums(const Losses& actual, const Losses& expected) {
  for (std::size_t row = 0; row < expected.parts.size(); ++row) {
    const CrossEntropyParts& a = actual.parts[row];
    const CrossEntropyParts& e = expected.parts[row];
    const auto lse = static_cast<float>(slave::cross_entropy_lse(a));
    if (std::isnan(e.sum)) {
      ASSERT_TRUE(std::isnan(a.sum));
      ASSERT_TRUE(std::isnan(expected.lse.value(row)) || std::isnan(lse));
      continue;
    }
    ASSERT_EQ(a.max, e.max);
    ASSERT_EQ(a.sum, e.sum);
    ASSERT_EQ(lse, static_cast<float>(expected.lse.value(row)));
    if (!std::isnan(e.sum_x)) {
      ASSERT_EQ(a.sum_x, e.sum_x);
    }
  }
}

std::vector<CrossEntropyRow> row_factors(CrossEntropy& one, const Data& lse) {
  std::vector<CrossEntropyRow> rows(one.rows());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::int64_t target = one.wide_targets[row];
    rows[row] = {static_cast<float>(lse.value(row)),
                 0.37f * static_cast<float>(row + 1),
                 one.weights.empty() || target < 0 ||
                         target >= static_cast<std::int64_t>(one.args.columns)
                     ? 1.0f
                     : one.weights[static_cast<std::size_t>(target)]};
  }
  return rows;
}

Data backward(CrossEntropy one, const KernelTable& table, const Data& lse,
              bool in_place) {
  std::vector<CrossEntropyRow> rows = row_factors(one, lse);
  Data out(one.x.type(), one.x.count());
  Data& dx = in_place ? one.x : out;
  run_rows(table, one.id(F::cross_entropy_backward), &one.args,
           {one.x.data(), one.target(0), rows.data(), one.weight(0), dx.data()},
           rows.size(), 0);
  return dx;
}

Data backward_pieces(CrossEntropy one, const KernelTable& table,
                     const Data& lse) {
  std::vector<CrossEntropyRow> rows = row_factors(one, lse);
  const std::size_t columns = one.args.columns;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      run_pass(Pass::map, table, one.id(F::cross_entropy_backward), &one.args,
               {one.x.at(row * columns + at), one.target(row), &rows[row],
                one.weight(at), one.x.at(row * columns + at)},
               std::min(columns - at, kChunkColumns), at);
    }
  }
  return one.x;
}

TEST(CrossEntropy, HasTheBitsOfTheReference) {
  Random random(21);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      for (int variant = 0; variant < 5; ++variant) {
        const CrossEntropy one =
            cross_entropy_case(type, columns, variant, random);
        SCOPED_TRACE(kFloatFormats[type].name + std::string(" columns ") +
                     std::to_string(columns) + " variant " +
                     std::to_string(variant));
        const Losses expected = forward(one, row_tables()[0]);
        const Data gradient =
            backward(one, row_tables()[0], expected.lse, false);
        for (const KernelTable& table : row_tables()) {
          SCOPED_TRACE(table.isa);
          const Losses actual = forward(one, table);
          ASSERT_TRUE(same_bits(actual.loss, expected.loss));
          ASSERT_TRUE(same_bits(actual.lse, expected.lse));
          expect_same_sums(actual, expected);
          if (HasFatalFailure()) return;
          for (const bool in_place : {false, true}) {
            ASSERT_TRUE(same_bits(backward(one, table, expected.lse, in_place),
                                  gradient));
          }
          ASSERT_TRUE(
              same_bits(backward_pieces(one, table, expected.lse), gradient));
        }
      }
    }
  }
}

TEST(CrossEntropy, IsExact) {
  Random random(22);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      for (int variant = 0; variant < 4; ++variant) {
        CrossEntropy one = cross_entropy_case(type, columns, variant, random);
        const CrossEntropyArgs& args = one.args;
        const Losses actual = forward(one, row_tables()[0]);
        const Data dx = backward(one, row_tables()[0], actual.lse, false);
        const auto rows = row_factors(one, actual.lse);
        for (std::size_t row = 0; row < one.rows(); ++row) {
          const std::size_t start = row * columns;
          const std::int64_t target = one.wide_targets[row];
          long double max = one.x.value(start);
          for (std::size_t j = 0; j < columns; ++j) {
            max = std::max<long double>(max, one.x.value(start + j));
          }
          long double sum = 0, sum_x = 0, size = 0;
          for (std::size_t j = 0; j < columns; ++j) {
            const long double x = one.x.value(start + j);
            const long double w = one.weights.empty() ? 1 : one.weights[j];
            sum += std::exp(x - max);
            sum_x += w * x;
            size += std::fabs(w * x);
          }
          if (!std::isfinite(static_cast<double>(sum + sum_x))) continue;
          const long double lse = max + std::log(sum);
          // The sum has the rounding errors of float32.
          ASSERT_NEAR(actual.lse.value(row), static_cast<double>(lse),
                      static_cast<double>(std::fabs(lse) * 0x1p-24L) + 0x1p-22);
          if (target == kIgnored) {
            ASSERT_EQ(actual.loss.value(row), 0.0);
            continue;
          }
          const long double w = rows[row].target_weight;
          const long double target_x =
              one.x.value(start + static_cast<std::size_t>(target));
          const long double loss =
              args.confidence * w * (lse - target_x) +
              args.uniform * (args.weight_sum * lse - sum_x) +
              args.z_loss * lse * lse;
          ASSERT_NEAR(
              actual.loss.value(row), static_cast<double>(loss),
              static_cast<double>(std::fabs(loss) * 0x1p-22L +
                                  std::fabs(lse) * 0x1p-24L +
                                  args.uniform * size * 0x1p-22L + 1e-7L));
          // The oracle takes lse and f32(x - lse) as given.
          for (std::size_t j = 0; j < columns; ++j) {
            const float log_p =
                static_cast<float>(one.x.value(start + j)) - rows[row].lse;
            const double p = std::exp(std::min(0.0, double{log_p}));
            const double a = args.confidence * rows[row].target_weight +
                             args.uniform * args.weight_sum +
                             2 * args.z_loss * rows[row].lse;
            const double c =
                args.uniform * (one.weights.empty() ? 1.0 : one.weights[j]);
            const double b = static_cast<std::size_t>(target) == j
                                 ? args.confidence * rows[row].target_weight
                                 : 0.0;
            const double g = rows[row].gradient;
            const double exact = g * (p * a - b - c);
            const double terms = g * (p * std::fabs(a) + b + c);
            const double rounding = type == kFloat32 ? 0
                                    : type == kFloat16
                                        ? std::fabs(exact) * 0x1p-11 + 0x1p-25
                                        : std::fabs(exact) * 0x1p-8;
            ASSERT_LE(std::fabs(dx.value(start + j) - exact),
                      rounding + terms * 0x1p-21 + 1e-37)
                << kFloatFormats[type].name << " columns " << columns
                << " variant " << variant;
          }
        }
      }
    }
  }
}

// torch 2.13 gives inf here: it sums the exponentials in float16.
TEST(CrossEntropy, LargeVocabularyOfFloat16IsFinite) {
  const std::size_t columns = 128256;
  CrossEntropyArgs args{columns, 0, kIgnored, 1, 0, 0, 0, 8, 0};
  Data x(kFloat16, columns);
  for (std::size_t j = 0; j < columns; ++j) x.set(j, 0);
  std::int64_t target = 5;
  for (const KernelTable& table : row_tables()) {
    float loss = 0, lse = 0;
    run_rows(table, kernel_of(F::cross_entropy, {kFloat16}), &args,
             {x.data(), &target, nullptr, &loss, &lse}, 1, 0);
    EXPECT_FLOAT_EQ(loss, 11.7617836f) << table.isa;
  }
}

// The gradient is applied before the only rounding: nothing underflows that
// the loss scale keeps.
TEST(CrossEntropy, GradientIsAppliedInFloat32) {
  const std::size_t columns = 50304;
  CrossEntropyArgs args{columns, 0, kIgnored, 1, 0, 0, 0, 8, 0};
  Data x(kFloat16, columns);
  for (std::size_t j = 0; j < columns; ++j) x.set(j, 0);
  std::int64_t target = 5;
  CrossEntropyRow row{static_cast<float>(std::log(50304.0)), 65536.0f / 4096,
                      1};
  for (const KernelTable& table : row_tables()) {
    Data dx(kFloat16, columns);
    run_rows(table, kernel_of(F::cross_entropy_backward, {kFloat16}), &args,
             {x.data(), &target, &row, nullptr, dx.data()}, 1, 0);
    EXPECT_NEAR(dx.value(0), 16.0 / 50304, 1e-7) << table.isa;
    EXPECT_NEAR(dx.value(5), -16.0, 0.01);
  }
}

}  // namespace
}  // namespace swamp::test
