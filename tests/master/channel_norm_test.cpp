// Sums, BatchNorm and GroupNorm against long double, and refused arguments. The
// same bits on every machine are in operators_test.cpp.
#include "swamp/channel_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "row_values.h"
#include "support/errors.h"

namespace swamp::test {
namespace {

using Real = long double;

Real real(const Values& values, std::size_t i) {
  return Real{widen(values.matrix.dtype, values.memory.data(), i)};
}

// Sums of one chunk and of many, of neighbours and of lines, and sums of sums;
// of numbers, squares, products and losses.
TEST(ChannelNorm, Sum) {
  const SumShape shapes[] = {{1, 1, 1},     {3, 17, 1},    {2, 8192, 1},
                             {2, 8193, 1},  {1, 70001, 1}, {1, 300, 7},
                             {3, 128, 16},  {2, 129, 33},  {1, 20000, 3},
                             {1, 17000, 1}, {5, 1, 9}};
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const SumShape& shape : shapes) {
      const std::size_t results = shape.outer * shape.inner;
      const std::size_t count = results * shape.terms;
      const Values x(1, count, type, count);
      const Values other(1, count, type, count + 1);
      const auto value_of = [&](const Values& of, std::size_t i) {
        return type == kFloat64
                   ? Real{reinterpret_cast<const double*>(of.memory.data())[i]}
                   : real(of, i);
      };
      const float most = 0.75f;
      const std::tuple<const Values*, const float*, bool> kinds[] = {
          {nullptr, nullptr, false}, {&x, nullptr, false},
          {&other, nullptr, false},  {&other, &most, false},
          {nullptr, nullptr, true},  {&other, &most, true}};
      for (const auto& [by, limit, narrow] : kinds) {
        if ((by != nullptr || narrow) && shape.inner != 1) continue;
        if (narrow && type != kFloat16 && type != kBFloat16) continue;
        std::vector<double> sums(results, -1);
        sum({x.matrix.data, count, type}, shape, sums.data(), nullptr,
            by == nullptr ? nullptr : by->matrix.data, limit, narrow);
        for (std::size_t k = 0; k < results; ++k) {
          Real expected = 0, size = 0;
          for (std::size_t t = 0; t < shape.terms; ++t) {
            const std::size_t i =
                (k / shape.inner * shape.terms + t) * shape.inner +
                k % shape.inner;
            const Real factor = by == nullptr ? 1 : value_of(*by, i);
            const Real d = std::fabs(value_of(x, i) - factor);
            const Real m = std::min(d, Real{most});
            const Real value =
                limit == nullptr ? value_of(x, i) * factor : m * (d - m / 2);
            expected += value;
            size += std::fabs(value);
          }
          ASSERT_LE(std::fabs(Real{sums[k]} - expected),
                    (narrow ? 1e-5L : 1e-14L) * size)
              << kFloatFormats[type].name << ' ' << shape.outer << ' '
              << shape.terms << ' ' << shape.inner;
        }
      }
    }
  }
  double zero = 1;
  sum({nullptr, 0, kFloat32}, {1, 0, 1}, &zero);
  EXPECT_EQ(zero, 0);
}

// Of one chunk and of two; nan wherever it is.
TEST(ChannelNorm, RowExtremes) {
  for (const ScalarType type : {kFloat16, kBFloat16}) {
    for (const std::size_t columns : {1u, 63u, 64u, 300u, 8192u, 8200u}) {
      Values x(3, columns, type, columns);
      store_value(type, x.memory.data(), 2 * columns + columns / 2, NAN);
      for (const bool is_smallest : {false, true}) {
        std::vector<double> found(3);
        row_extremes(x.matrix, is_smallest, found.data());
        for (std::size_t r = 0; r < 2; ++r) {
          Real expected = real(x, r * columns);
          for (std::size_t i = 1; i < columns; ++i) {
            const Real next = real(x, r * columns + i);
            expected = is_smallest ? std::min(expected, next)
                                   : std::max(expected, next);
          }
          EXPECT_EQ(Real{found[r]}, expected)
              << kFloatFormats[type].name << ' ' << columns;
        }
        EXPECT_TRUE(std::isnan(found[2]));
      }
    }
  }
  // Zeros: the only one of its sign is the last one.
  for (const std::size_t columns : {2u, 65u, 8192u, 8193u, 20000u}) {
    for (const bool is_smallest : {false, true}) {
      Values x(1, columns, kBFloat16);
      for (std::size_t i = 0; i < columns; ++i) {
        store_value(kBFloat16, x.memory.data(), i,
                    is_smallest == (i + 1 == columns) ? -0.0 : 0.0);
      }
      double found = NAN;
      row_extremes(x.matrix, is_smallest, &found);
      EXPECT_EQ(found, 0);
      EXPECT_EQ(std::signbit(found), is_smallest) << columns;
    }
  }
  double largest = 0;
  row_extremes({nullptr, 1, 0, kFloat16}, false, &largest);
  EXPECT_EQ(largest, -INFINITY);
}

struct Sizes {
  std::size_t images, channels, groups, positions;
};

// Exact is the statistics and gradients in long double, from float32 inputs and
// the gradient of y.
struct Exact {
  std::vector<Real> mean, variance, y, dx, dweight, dbias;

  Exact(const Sizes& sizes, const Values& x, const Values& gradient,
        const std::vector<float>& weight, const std::vector<float>& bias,
        Real eps) {
    const std::size_t rows = sizes.images * sizes.channels,
                      count = sizes.groups == 0 ? sizes.channels
                                                : sizes.images * sizes.groups,
                      in_group =
                          sizes.groups == 0 ? 1 : sizes.channels / sizes.groups;
    const Real n = static_cast<Real>(rows / count * sizes.positions);
    const auto each = [&](const auto& visit) {
      for (std::size_t i = 0; i < rows * sizes.positions; ++i) {
        const std::size_t r = i / sizes.positions, c = r % sizes.channels;
        visit(i, sizes.groups == 0 ? c : r / in_group, c);
      }
    };
    mean.resize(count), variance.resize(count);
    y.resize(rows * sizes.positions), dx = y;
    dweight.resize(sizes.channels), dbias = dweight;
    each([&](auto i, auto k, auto) { mean[k] += real(x, i) / n; });
    each([&](auto i, auto k, auto) {
      variance[k] += (real(x, i) - mean[k]) * (real(x, i) - mean[k]) / n;
    });
    std::vector<Real> of_g(count), of_gx(count);
    const auto xhat = [&](auto i, auto k) {
      return (real(x, i) - mean[k]) / std::sqrt(variance[k] + eps);
    };
    each([&](auto i, auto k, auto c) {
      const Real g = real(gradient, i), w = Real{weight[c]};
      y[i] = xhat(i, k) * w + Real{bias[c]};
      of_g[k] += w * g / n;
      of_gx[k] += w * g * xhat(i, k) / n;
      dweight[c] += g * xhat(i, k);
      dbias[c] += g;
    });
    each([&](auto i, auto k, auto c) {
      dx[i] = (Real{weight[c]} * real(gradient, i) - of_g[k] -
               xhat(i, k) * of_gx[k]) /
              std::sqrt(variance[k] + eps);
    });
  }
};

// expect_near() compares with a tolerance in units of `eps`, relative to the
// largest expected value.
template <class Get>
void expect_near(const std::vector<Real>& expected, const Get& get, Real eps,
                 const std::string& what) {
  Real largest = 1e-3L;
  for (const Real value : expected) {
    largest = std::max(largest, std::fabs(value));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::fabs(get(i) - expected[i]), eps * largest)
        << what << ' ' << i;
  }
}

TEST(ChannelNorm, BatchAndGroupNorm) {
  const Sizes all[] = {{1, 3, 0, 50},  {4, 5, 0, 33}, {2, 6, 3, 17},
                       {3, 8, 1, 100}, {2, 6, 1, 2},  {1, 2, 1, 20000},
                       // Several blocks.
                       {3, 307, 0, 1100}, {6, 8, 4, 30001}};
  for (const ScalarType type : kRowTypes) {
    const Real eps = type == kBFloat16  ? 0x1p-8L
                     : type == kFloat16 ? 0x1p-11L
                                        : 0x1p-20L;
    for (const Sizes& sizes : all) {
      const std::size_t rows = sizes.images * sizes.channels;
      const ChannelShape shape{sizes.channels, sizes.groups};
      const std::size_t count = shape.statistics(rows);
      const Values x(rows, sizes.positions, type, 1),
          gradient(rows, sizes.positions, type, 2);
      Values y(rows, sizes.positions, type), dx = y;
      std::vector<float> weight, bias;
      for (std::size_t c = 0; c < sizes.channels; ++c) {
        weight.push_back(0.5f + 0.25f * static_cast<float>(c % 7));
        bias.push_back(static_cast<float>(c % 5) - 2.0f);
      }
      const Exact exact(sizes, x, gradient, weight, bias, 1e-5L);
      const std::string what = std::string(kFloatFormats[type].name) + " " +
                               std::to_string(rows) + " x " +
                               std::to_string(sizes.positions) + " ";
      std::vector<float> mean(count), variance(count), rstd(count),
          dweight(sizes.channels), dbias(sizes.channels);
      channel_statistics(x.matrix, shape, 1e-5, mean.data(), variance.data(),
                         rstd.data());
      const auto of = [](const std::vector<float>& values) {
        return [&](std::size_t i) { return Real{values[i]}; };
      };
      expect_near(exact.mean, of(mean), 0x1p-23L, what + "mean");
      expect_near(exact.variance, of(variance), 0x1p-20L, what + "variance");
      channel_norm(x.matrix, shape, mean.data(), rstd.data(), weight.data(),
                   bias.data(), y.matrix);
      expect_near(
          exact.y, [&](std::size_t i) { return real(y, i); }, eps, what + "y");
      channel_norm_backward(gradient.matrix, x.matrix, shape, mean.data(),
                            rstd.data(), weight.data(), false, dx.matrix,
                            dweight.data(), dbias.data());
      expect_near(
          exact.dx, [&](std::size_t i) { return real(dx, i); }, 4 * eps,
          what + "dx");
      expect_near(exact.dweight, of(dweight), 0x1p-17L, what + "dweight");
      expect_near(exact.dbias, of(dbias), 0x1p-23L, what + "dbias");
      // With fixed statistics dx is gradient * weight * rstd.
      channel_norm_backward(gradient.matrix, x.matrix, shape, mean.data(),
                            rstd.data(), nullptr, true, dx.matrix, nullptr,
                            nullptr);
      for (std::size_t i = 0; i < rows * sizes.positions; ++i) {
        const std::size_t r = i / sizes.positions;
        const std::size_t k = sizes.groups == 0
                                  ? r % sizes.channels
                                  : r / (sizes.channels / sizes.groups);
        const Real expected = real(gradient, i) * Real{rstd[k]};
        ASSERT_LE(std::fabs(real(dx, i) - expected),
                  2 * eps * std::fabs(expected) + 1e-7L)
            << what;
      }
    }
  }
}

// with_channels_last() is `of` with the channels of each position together.
Values with_channels_last(const Values& of, std::size_t channels) {
  const Matrix& x = of.matrix;
  const std::size_t bytes = kScalarTypeBytes[x.dtype];
  Values last(x.rows, x.columns, x.dtype);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      const std::size_t to =
          (r / channels * x.columns + j) * channels + r % channels;
      std::memcpy(
          static_cast<std::byte*>(last.matrix.data) + to * bytes,
          static_cast<const std::byte*>(x.data) + (r * x.columns + j) * bytes,
          bytes);
    }
  }
  return last;
}

// The same bits if the channels are last.
TEST(ChannelNorm, ChannelsLast) {
  const Sizes all[] = {{1, 3, 0, 50},
                       {4, 5, 0, 33},
                       {3, 70, 0, 31},
                       {2, 64, 0, 130},
                       {2, 1030, 0, 5}};
  for (const ScalarType type : kRowTypes) {
    for (const Sizes& sizes : all) {
      const std::size_t rows = sizes.images * sizes.channels;
      const Values x(rows, sizes.positions, type, 1),
          gradient(rows, sizes.positions, type, 2);
      std::vector<std::vector<float>> numbers[2];
      std::vector<std::byte> matrices[2];
      for (const bool last : {false, true}) {
        const ChannelShape shape{sizes.channels, 0, last};
        const auto laid_out = [&](const Values& values) {
          return last ? with_channels_last(values, sizes.channels) : values;
        };
        const Values in = laid_out(x), gradient_in = laid_out(gradient);
        Values y(rows, sizes.positions, type), dx = y, fixed = y;
        std::vector<float> mean(sizes.channels), variance = mean, rstd = mean,
                                                 dweight = mean, dbias = mean;
        channel_statistics(in.matrix, shape, 1e-5, mean.data(), variance.data(),
                           rstd.data());
        channel_norm(in.matrix, shape, mean.data(), rstd.data(),
                     variance.data(), nullptr, y.matrix);
        channel_norm_backward(gradient_in.matrix, in.matrix, shape, mean.data(),
                              rstd.data(), variance.data(), false, dx.matrix,
                              dweight.data(), dbias.data());
        channel_norm_backward(gradient_in.matrix, in.matrix, shape, mean.data(),
                              rstd.data(), nullptr, true, fixed.matrix, nullptr,
                              nullptr);
        numbers[last] = {mean, variance, rstd, dweight, dbias};
        for (const Values* const result : {&y, &dx, &fixed}) {
          const Values& same =
              last ? *result : with_channels_last(*result, sizes.channels);
          matrices[last].insert(matrices[last].end(), same.memory.begin(),
                                same.memory.end());
        }
      }
      EXPECT_EQ(numbers[0], numbers[1]) << rows;
      EXPECT_EQ(matrices[0], matrices[1]) << rows;
    }
  }
}

TEST(ChannelNorm, Errors) {
  Values x(6, 4, kFloat16, 1), y = x, other(6, 4, kFloat32),
                               wide(6, 5, kFloat16);
  std::vector<float> values(6);
  std::vector<double> sums(24);
  float* const v = values.data();
  const auto statistics = [&](const ChannelShape& shape, float* mean) {
    channel_statistics(x.matrix, shape, 0, mean, nullptr, v);
  };
  const Tensor all{x.matrix.data, 24, kFloat16};
  const float limit = 1;
  expect_refused({
      {[&] {
         sum(all, {2, 3, 5}, sums.data());
       },
       "x.count: got 24, expected 30 (as 'shape' has)"},
      {[&] {  // 24 elements modulo 2^64
         sum(all, {4, 6, (std::size_t{1} << 63) + 1}, sums.data());
       },
       "shape: got 4 x 6 x 9223372036854775809, expected at most"},
      {[&] {
         sum({x.matrix.data, 24, kFloat8E4M3FN}, {1, 24, 1}, sums.data());
       },
       "x.dtype: got 4 (float8_e4m3fn), expected", SWAMP_UNSUPPORTED},
      {[&] {
         sum(all, {2, 3, 4}, sums.data(), nullptr, all.data);
       },
       "shape.inner: got 4, expected 1, because there is a factor"},
      {[&] {
         sum(all, {1, 24, 1}, sums.data(), nullptr, nullptr, &limit);
       },
       "limit: got an address, expected null, because there is no factor"},
      {[&] {
         sum(all, {1, 24, 1}, sums.data(), nullptr, all.data, nullptr, true);
       },
       "limit: got null, expected an address, because sums with a factor"},
      {[&] {
         sum(all, {2, 3, 4}, sums.data(), nullptr, nullptr, nullptr, true);
       },
       "shape.inner: got 4, expected 1, because sums are narrow"},
      {[&] { row_extremes(other.matrix, false, sums.data()); },
       "x.dtype: got 2 (float32), expected", SWAMP_UNSUPPORTED},
      {[&] {
         sum(all, {1, 24, 1}, nullptr);
       },
       "sums: got null"},
      {[&] {
         statistics({4, 0}, v);
       },
       "shape.channels: got 4, expected a divisor of x.rows, 6"},
      {[&] {
         statistics({0, 0}, v);
       },
       "shape.channels: got 0, expected a divisor of x.rows, 6"},
      {[&] {
         statistics({6, 4}, v);
       },
       "shape.groups: got 4, expected 0 or a divisor of shape.channels, 6"},
      {[&] {
         statistics({6, 2, true}, v);
       },
       "shape.groups: got 2, expected 0, because the channels are last"},
      {[&] {
         statistics({6, 2}, nullptr);
       },
       "mean: got null"},
      {[&] {
         channel_norm(x.matrix, {6, 0}, v, v, v, v, wide.matrix);
       },
       "y.columns: got 5, expected 4 (as 'x' has)"},
      {[&] {
         channel_norm_backward(other.matrix, x.matrix, {6, 0}, v, v, v, false,
                               y.matrix, v, v);
       },
       "gradient.dtype: got float32, expected float16 (as 'x' has)"},
  });
}

}  // namespace
}  // namespace swamp::test
