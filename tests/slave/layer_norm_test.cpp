// The kernels of LayerNorm and RMSNorm: the bits of the reference on every ISA,
// in one visit and in two, and an oracle of higher precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "row_cases.h"

namespace swamp::test {
namespace {

using slave::kChunkColumns;
using slave::LayerNormChunk;
using slave::NormBackwardChunk;
using slave::NormBackwardRow;
using slave::RowNormArgs;

struct NormCase {
  RowNormArgs args;
  bool with_mean;
  bool has_weight, has_bias;
  Data x, g, weight, bias;

  std::size_t rows() const { return x.count() / args.columns; }
  int id(F layer_norm, F rms_norm) const {
    return kernel_of(with_mean ? layer_norm : rms_norm,
                     {x.type(), weight.type()});
  }
  double factor(std::size_t j) const {
    return has_weight ? weight.value(j) + args.weight_offset : 1;
  }
  void* weight_at(std::size_t j) { return has_weight ? weight.at(j) : nullptr; }
  void* bias_at(std::size_t j) { return has_bias ? bias.at(j) : nullptr; }
};

NormCase norm_case(ScalarType type, std::size_t columns, int variant,
                   Random& random) {
  const std::size_t rows = columns > 4097 ? 2 : 9;
  const bool with_mean = variant % 2 == 0;
  const int kind = variant / 2;
  const ScalarType weight_type = kind % 2 == 1 ? kFloat32 : type;
  NormCase one{{columns, 1e-5, kind == 2 ? 1.0f : 0.0f, 0},
               with_mean,
               kind != 3,
               with_mean && kind != 1 && kind != 2,
               filled_rows(type, rows, columns, random,
                           static_cast<int>(random.below(kRowKinds))),
               filled_rows(type, rows, columns, random, 0),
               Data(weight_type, columns),
               Data(weight_type, columns)};
  for (std::size_t j = 0; j < columns; ++j) {
    one.weight.set(j, normal(random));
    one.bias.set(j, normal(random));
  }
  return one;
}

struct Normalised {
  Data y, mean, rstd;
};

Normalised forward(NormCase one, const KernelTable& table, bool in_place,
                   bool hints) {
  const std::size_t rows = one.rows();
  Normalised result{
      {one.x.type(), one.x.count()}, {kFloat32, rows}, {kFloat32, rows}};
  Data& y = in_place ? one.x : result.y;
  std::vector<void*> operands = {one.x.data(), one.weight_at(0)};
  if (one.with_mean) operands.push_back(one.bias_at(0));
  operands.push_back(y.data());
  if (one.with_mean) operands.push_back(result.mean.data());
  operands.push_back(result.rstd.data());
  run_rows(table, one.id(F::layer_norm, F::rms_norm), &one.args, operands, rows,
           0, nullptr, hints);
  if (in_place) result.y = one.x;
  return result;
}

Normalised forward_passes(NormCase one, const KernelTable& table) {
  const std::size_t rows = one.rows();
  const std::size_t columns = one.args.columns;
  const std::size_t chunk_count = (columns + kChunkColumns - 1) / kChunkColumns;
  Normalised result{
      {one.x.type(), one.x.count()}, {kFloat32, rows}, {kFloat32, rows}};
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<LayerNormChunk> chunks(chunk_count);
    std::vector<slave::RmsNormChunk> squares(chunk_count);
    for (std::size_t at = 0; at < columns; at += 2 * kChunkColumns) {
      const std::size_t chunk = at / kChunkColumns;
      void* const partial =
          one.with_mean ? static_cast<void*>(&chunks[chunk]) : &squares[chunk];
      run_pass(Pass::sum, table, one.id(F::layer_norm, F::rms_norm), &one.args,
               {one.x.at(row * columns + at), nullptr, nullptr, nullptr,
                nullptr, nullptr},
               std::min(columns - at, 2 * kChunkColumns), at, partial);
    }
    auto [mean, rstd] =
        one.with_mean
            ? slave::norm_statistics(chunks.data(), columns, one.args.eps)
            : slave::norm_statistics(squares.data(), columns, one.args.eps);
    result.mean.set(row, mean);
    result.rstd.set(row, rstd);
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      const std::size_t start = row * columns + at;
      std::vector<void*> operands = {one.x.at(start), one.weight_at(at)};
      if (one.with_mean) operands.push_back(one.bias_at(at));
      operands.push_back(result.y.at(start));
      if (one.with_mean) operands.push_back(&mean);
      operands.push_back(&rstd);
      run_pass(Pass::map, table, one.id(F::layer_norm, F::rms_norm), &one.args,
               operands, std::min(columns - at, kChunkColumns), at);
    }
  }
  return result;
}

struct NormGradients {
  Data dx;
  std::vector<double> sums;
};

testing::AssertionResult same_sums(const std::vector<double>& actual,
                                   const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    if (actual[i] != expected[i]) {
      return testing::AssertionFailure()
             << "sum " << i << ": " << actual[i] << " expected " << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

// backward() runs on tiles of `tile_rows` rows.
NormGradients backward(NormCase one, const Normalised& saved,
                       const KernelTable& table, int in_place,
                       std::size_t tile_rows) {
  const std::size_t columns = one.args.columns;
  Data mean = saved.mean;
  Data rstd = saved.rstd;
  NormGradients result{{one.x.type(), one.x.count()},
                       std::vector<double>(2 * columns + 1, 0.0)};
  Data& dx = in_place == 0 ? result.dx : in_place == 1 ? one.g : one.x;
  for (std::size_t row = 0; row < one.rows(); row += tile_rows) {
    const std::size_t start = row * columns;
    std::vector<void*> operands = {one.g.at(start), one.x.at(start)};
    if (one.with_mean) operands.push_back(mean.at(row));
    operands.push_back(rstd.at(row));
    operands.push_back(one.weight_at(0));
    operands.push_back(dx.at(start));
    run_rows(table, one.id(F::layer_norm_backward, F::rms_norm_backward),
             &one.args, operands, std::min(tile_rows, one.rows() - row), row,
             result.sums.data());
  }
  if (in_place != 0) result.dx = dx;
  return result;
}

NormGradients backward_passes(NormCase one, const Normalised& saved,
                              const KernelTable& table) {
  const std::size_t columns = one.args.columns;
  NormGradients result{{one.x.type(), one.x.count()},
                       std::vector<double>(2 * columns + 1, 0.0)};
  for (std::size_t row = 0; row < one.rows(); ++row) {
    const std::size_t start = row * columns;
    auto mean = static_cast<float>(saved.mean.value(row));
    auto rstd = static_cast<float>(saved.rstd.value(row));
    std::vector<slave::NormBackwardSums> sums(columns / kChunkColumns + 1);
    std::vector<NormBackwardChunk> chunks;
    for (std::size_t at = 0; at < columns; at += 2 * kChunkColumns) {
      std::vector<void*> operands = {one.g.at(start + at),
                                     one.x.at(start + at)};
      if (one.with_mean) operands.push_back(&mean);
      operands.push_back(&rstd);
      operands.push_back(one.weight_at(at));
      operands.push_back(nullptr);
      run_pass(Pass::sum, table,
               one.id(F::layer_norm_backward, F::rms_norm_backward), &one.args,
               operands, std::min(columns - at, 2 * kChunkColumns), at,
               &sums[at / kChunkColumns]);
    }
    for (const slave::NormBackwardSums& one_chunk : sums) {
      chunks.push_back(one_chunk.chunk());
    }
    NormBackwardRow factors =
        slave::combine_chunks(chunks.data(), columns, mean, rstd);
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      std::vector<void*> operands = {one.g.at(start + at), one.x.at(start + at),
                                     &factors};
      if (one.with_mean) operands.push_back(nullptr);
      operands.push_back(one.weight_at(at));
      operands.push_back(result.dx.at(start + at));
      run_pass(Pass::map, table,
               one.id(F::layer_norm_backward, F::rms_norm_backward), &one.args,
               operands, std::min(columns - at, kChunkColumns), at,
               result.sums.data());
    }
  }
  return result;
}

TEST(LayerNorm, HasTheBitsOfTheReference) {
  Random random(31);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      for (int variant = 0; variant < 8; ++variant) {
        const NormCase one = norm_case(type, columns, variant, random);
        SCOPED_TRACE(kFloatFormats[type].name + std::string(" columns ") +
                     std::to_string(columns) + " variant " +
                     std::to_string(variant));
        const Normalised expected = forward(one, row_tables()[0], false, false);
        const NormGradients gradients =
            backward(one, expected, row_tables()[0], 0, 100);
        for (const KernelTable& table : row_tables()) {
          SCOPED_TRACE(table.isa);
          for (const bool in_place : {false, true}) {
            const Normalised actual = forward(one, table, in_place, !in_place);
            ASSERT_TRUE(same_bits(actual.y, expected.y));
            ASSERT_TRUE(same_bits(actual.rstd, expected.rstd));
            if (one.with_mean) {
              ASSERT_TRUE(same_bits(actual.mean, expected.mean));
            }
          }
          const Normalised passes = forward_passes(one, table);
          ASSERT_TRUE(same_bits(passes.y, expected.y));
          ASSERT_TRUE(same_bits(passes.rstd, expected.rstd));
          for (int in_place = 0; in_place < 3; ++in_place) {
            const NormGradients actual =
                backward(one, expected, table, in_place,
                         static_cast<std::size_t>(7 - 3 * in_place));
            ASSERT_TRUE(same_bits(actual.dx, gradients.dx));
            ASSERT_TRUE(same_sums(actual.sums, gradients.sums));
          }
          const NormGradients two = backward_passes(one, expected, table);
          ASSERT_TRUE(same_bits(two.dx, gradients.dx));
          ASSERT_TRUE(same_sums(two.sums, gradients.sums));
        }
      }
    }
  }
}

// The oracle takes mean and rstd as given for y, and tests them by themselves.
TEST(LayerNorm, IsNearTheExactResult) {
  Random random(32);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      for (int variant = 0; variant < 8; ++variant) {
        const NormCase one = norm_case(type, columns, variant, random);
        const Normalised actual = forward(one, row_tables()[0], false, false);
        const NormGradients gradients =
            backward(one, actual, row_tables()[0], 0, 4);
        const double ulp = type == kFloat16    ? 0x1p-11
                           : type == kBFloat16 ? 0x1p-8
                                               : 0;
        const double tiny = type == kFloat16 ? 0x1p-25 : 1e-38;
        const double n = static_cast<double>(columns);
        std::vector<double> weight_gradient(columns), bias_gradient(columns),
            sizes(columns);
        bool finite = true;
        for (std::size_t row = 0; row < one.rows(); ++row) {
          const std::size_t start = row * columns;
          long double sum = 0, squares = 0;
          for (std::size_t j = start; j < start + columns; ++j) {
            sum += one.x.value(j);
          }
          const long double mean = one.with_mean ? sum / n : 0;
          for (std::size_t j = start; j < start + columns; ++j) {
            squares += (one.x.value(j) - mean) * (one.x.value(j) - mean);
          }
          finite = finite && std::isfinite(static_cast<double>(squares));
          if (!finite) break;
          if (one.with_mean) {
            // An ulp, unless the sum cancels beyond the precision of double.
            const auto exact = static_cast<double>(mean);
            ASSERT_NEAR(actual.mean.value(row), exact,
                        std::fabs(exact) * 0x1p-23 + 1e-14);
          }
          const auto rstd =
              static_cast<double>(1 / std::sqrt(squares / n + 1e-5L));
          ASSERT_TRUE(is_rounded(actual.rstd, row, rstd));
          const double given_mean = one.with_mean ? actual.mean.value(row) : 0;
          const double given_rstd = actual.rstd.value(row);
          double sum_h = 0, sum_hx = 0, size_h = 0, size_hx = 0;
          for (std::size_t j = 0; j < columns; ++j) {
            const double xhat =
                (one.x.value(start + j) - given_mean) * given_rstd;
            const double factor = one.factor(j);
            const double bias = one.has_bias ? one.bias.value(j) : 0;
            const double y = xhat * factor + bias;
            ASSERT_LE(
                std::fabs(actual.y.value(start + j) - y),
                std::fabs(y) * ulp + tiny +
                    (std::fabs(xhat * factor) + std::fabs(bias)) * 0x1p-21);
            const double h = one.g.value(start + j) * factor;
            sum_h += h;
            sum_hx += h * xhat;
            size_h += std::fabs(h);
            size_hx += std::fabs(h * xhat);
            weight_gradient[j] += one.g.value(start + j) * xhat;
            bias_gradient[j] += one.g.value(start + j);
            sizes[j] += std::fabs(one.g.value(start + j) * xhat);
          }
          if (!std::isfinite(size_hx)) continue;
          for (std::size_t j = 0; j < columns; ++j) {
            const double xhat =
                (one.x.value(start + j) - given_mean) * given_rstd;
            const double factor = one.factor(j);
            const double h = one.g.value(start + j) * factor;
            const double a = one.with_mean ? sum_h / n : 0;
            const double b = sum_hx / n;
            const double dx = given_rstd * (h - a - xhat * b);
            const double terms = given_rstd * (std::fabs(h) + size_h / n +
                                               std::fabs(xhat) * size_hx / n);
            if (type == kFloat16 && std::fabs(dx) > 65000) continue;
            ASSERT_LE(std::fabs(gradients.dx.value(start + j) - dx),
                      std::fabs(dx) * ulp + terms * 0x1p-20 + tiny)
                << kFloatFormats[type].name << " columns " << columns;
          }
        }
        for (std::size_t j = 0; finite && j < columns; ++j) {
          if (!std::isfinite(weight_gradient[j])) continue;
          ASSERT_NEAR(gradients.sums[j], weight_gradient[j],
                      sizes[j] * 0x1p-22 + 1e-300);
          if (one.with_mean && std::isfinite(bias_gradient[j])) {
            ASSERT_EQ(gradients.sums[columns + j], bias_gradient[j]);
          }
        }
      }
    }
  }
}

// torch 2.13 gives 256 or 512, by the number of threads: it adds in bfloat16.
TEST(LayerNorm, GradientOfBiasOfManyRowsIsExact) {
  constexpr std::size_t kRows = 8192;
  constexpr std::size_t kColumns = 16;
  RowNormArgs args{kColumns, 1e-5, 0, 0};
  Data ones(kBFloat16, kRows * kColumns);
  for (std::size_t i = 0; i < ones.count(); ++i) ones.set(i, 1);
  Data mean(kFloat32, kRows);
  Data rstd(kFloat32, kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    mean.set(row, 0);
    rstd.set(row, 1);
  }
  for (const KernelTable& table : row_tables()) {
    std::vector<double> sums(2 * kColumns, 0.0);
    run_rows(
        table, kernel_of(F::layer_norm_backward, {kBFloat16, kBFloat16}), &args,
        {ones.data(), ones.data(), mean.data(), rstd.data(), nullptr, nullptr},
        kRows, 0, sums.data());
    for (const double sum : sums) EXPECT_EQ(sum, 8192.0) << table.isa;
  }
}

}  // namespace
}  // namespace swamp::test
