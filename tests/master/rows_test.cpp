// Row operators: the same bits on every machine, near the exact results, and
// the errors. The kernels' own tests compare every bit with an oracle.
#include "swamp/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "machines.h"
#include "runtime/check.h"
#include "runtime/machine_impl.h"
#include "support/errors.h"
#include "support/formats.h"
#include "support/random.h"
#include "support/thread_communicator.h"

namespace swamp::test {
namespace {

using Bytes = std::vector<std::byte>;

// They give one visit with one tile or several, and two visits.
const std::vector<MachineShape> kShapes = {
    {1, 3, 64 * 1024}, {1, 2, 256 * 1024}, {6, 64, 64 * 1024}};
constexpr ScalarType kTypes[] = {kFloat16, kBFloat16, kFloat32};

float widen(ScalarType type, const void* data, std::size_t i) {
  const std::uint64_t bits = load_bits(format_of(type), data, i);
  if (type == kFloat16) {
    return float16_to_float(static_cast<std::uint16_t>(bits));
  }
  if (type == kBFloat16) {
    return bfloat16_to_float(static_cast<std::uint16_t>(bits));
  }
  return float_from_bits(static_cast<std::uint32_t>(bits));
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

// expect_same() runs `call` on the default shape and on every machine, and
// compares the memory of the outputs that it returns.
template <class Call>
std::vector<Bytes> expect_same(Call call) {
  Machine plain(MachineConfig{});
  const std::vector<Bytes> expected = call(plain);
  const std::size_t reports = runtime::report_count();
  on_machines(kShapes, false, [&](Machine& machine) {
    EXPECT_TRUE(call(machine) == expected);
  });
  EXPECT_EQ(runtime::report_count(), reports);
  return expected;
}

struct SoftmaxCase {
  const char* name;
  std::size_t rows, columns, causal_rows;
  int mask;  // 0: none; 1: a third of it; 2: also whole rows; heads 2
  bool zero_masked_rows;
};
constexpr SoftmaxCase kSoftmaxCases[] = {
    {"one", 1, 1, 0, 0, true},
    {"short", 301, 17, 0, 0, true},
    {"causal", 3 * 64, 64, 64, 0, true},
    {"masked", 2 * 2 * 50, 129, 0, 1, true},
    {"masked rows", 2 * 2 * 50, 129, 0, 2, true},
    {"masked rows, uniform", 2 * 2 * 50, 129, 0, 2, false},
    {"4096", 9, 4096, 0, 0, true},
    {"long", 3, 50257, 0, 0, true},
    {"long causal", 4, 20000, 2, 0, true},
    {"long masked", 2 * 2 * 2, 16391, 0, 2, true},
};

double exact_score(const Values& x, const SoftmaxOptions& options,
                   std::size_t i, std::size_t j) {
  const SoftmaxMask& mask = options.mask;
  if (mask.data != nullptr) {
    const std::size_t batch = i / mask.query_rows / mask.heads % mask.batches;
    const std::size_t row = batch * mask.query_rows + i % mask.query_rows;
    if (mask.data[row * x.matrix.columns + j] != 0) return -10000;
  }
  return static_cast<double>(static_cast<float>(x(i, j)) * options.scale);
}

TEST(Rows, Softmax) {
  for (const SoftmaxCase& one : kSoftmaxCases) {
    for (const ScalarType type : kTypes) {
      SCOPED_TRACE(std::string(one.name) + " " + format_of(type).name);
      const Values x(one.rows, one.columns, type, 7);
      const Values gradient(one.rows, one.columns, type, 8);
      std::vector<std::uint8_t> mask(one.rows / 2 * one.columns + 1);
      Random random(9);
      for (std::uint8_t& byte : mask) byte = random.below(3) == 0;
      if (one.mask == 2) {
        std::memset(mask.data() + one.columns, 1, one.columns);
      }
      SoftmaxOptions options;
      options.scale = 0.3f;
      options.causal_rows = one.causal_rows;
      options.zero_masked_rows = one.zero_masked_rows;
      if (one.mask != 0) {
        options.mask = {mask.data(), 2, 2, one.rows / 4};
      }
      const std::vector<Bytes> results = expect_same([&](Machine& machine) {
        Values y(one.rows, one.columns, type);
        scaled_softmax(x.matrix, y.matrix, options, &machine);
        Values in_place = x;
        scaled_softmax(in_place.matrix, in_place.matrix, options, &machine);
        EXPECT_TRUE(in_place.memory == y.memory);
        Values dx = gradient;
        scaled_softmax_backward(dx.matrix, y.matrix, dx.matrix, options,
                                &machine);
        Values other(one.rows, one.columns, type);
        scaled_softmax_backward(gradient.matrix, y.matrix, other.matrix,
                                options, &machine);
        EXPECT_TRUE(other.memory == dx.memory);
        return std::vector<Bytes>{y.memory, dx.memory};
      });
      Values y(one.rows, one.columns, type), dx = y;
      std::memcpy(y.memory.data(), results[0].data(), y.memory.size());
      std::memcpy(dx.memory.data(), results[1].data(), dx.memory.size());
      const double unit =
          std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits));
      for (std::size_t i = 0; i < one.rows; ++i) {
        const std::size_t valid =
            one.causal_rows == 0
                ? one.columns
                : std::min(one.columns, i % one.causal_rows + 1);
        double max = -1e30, sum = 0, dot = 0;
        for (std::size_t j = 0; j < valid; ++j) {
          max = std::max(max, exact_score(x, options, i, j));
        }
        for (std::size_t j = 0; j < valid; ++j) {
          sum += std::exp(exact_score(x, options, i, j) - max);
          dot += gradient(i, j) * y(i, j);
        }
        const bool zero = options.zero_masked_rows && max == -10000;
        for (std::size_t j = 0; j < one.columns; ++j) {
          const double p =
              j >= valid || zero
                  ? 0
                  : std::exp(exact_score(x, options, i, j) - max) / sum;
          ASSERT_NEAR(y(i, j), p, p * unit + 1e-7) << i << " " << j;
          const double d =
              j >= valid ? 0
                         : 0.3f * (gradient(i, j) * y(i, j) - y(i, j) * dot);
          ASSERT_NEAR(dx(i, j), d, std::fabs(d) * unit + 1e-5) << i << " " << j;
        }
      }
    }
  }
}

struct CrossEntropyCase {
  const char* name;
  std::size_t rows, columns;
  double smoothing, z_loss;
  bool weights;
};
constexpr CrossEntropyCase kCrossEntropyCases[] = {
    {"one class", 3, 1, 0, 0, false},
    {"plain", 65, 1000, 0, 0, false},
    {"smoothing", 33, 129, 0.1, 0, false},
    {"weights", 33, 129, 0.2, 0, true},
    {"z-loss", 9, 4096, 0.1, 1e-2, true},
    {"GPT-2", 5, 50257, 0, 1e-4, false},
    {"GPT-2, weights", 3, 50257, 0.1, 0, true},
};

std::vector<std::int64_t> make_targets(std::size_t rows, std::size_t columns) {
  std::vector<std::int64_t> targets(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    targets[i] =
        i % 5 == 2 ? -100 : static_cast<std::int64_t>(i * 7919 % columns);
  }
  return targets;
}

Bytes bytes_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(Rows, CrossEntropy) {
  for (const CrossEntropyCase& one : kCrossEntropyCases) {
    for (const ScalarType type : kTypes) {
      SCOPED_TRACE(std::string(one.name) + " " + format_of(type).name);
      const Values x(one.rows, one.columns, type, 17);
      const auto targets = make_targets(one.rows, one.columns);
      std::vector<float> weights(one.columns), g(one.rows);
      for (std::size_t c = 0; c < one.columns; ++c) {
        weights[c] = 0.5f + static_cast<float>(c % 3);
      }
      for (std::size_t i = 0; i < one.rows; ++i) {
        g[i] = 65536.0f / static_cast<float>(i + 1);
      }
      CrossEntropyOptions options;
      options.label_smoothing = one.smoothing;
      options.z_loss = one.z_loss;
      if (one.weights) options.class_weights = weights.data();
      CrossEntropyTotal total;
      const std::vector<Bytes> results = expect_same([&](Machine& machine) {
        std::vector<float> losses(one.rows), lse(one.rows);
        total = cross_entropy(x.matrix, targets.data(), losses.data(),
                              lse.data(), options, &machine);
        Values dx = x;
        cross_entropy_backward(dx.matrix, targets.data(), lse.data(), g.data(),
                               dx.matrix, options, &machine);
        Values other(one.rows, one.columns, type);
        cross_entropy_backward(x.matrix, targets.data(), lse.data(), g.data(),
                               other.matrix, options, &machine);
        std::memcpy(&other.memory.back(), &dx.memory.back(), 1);
        EXPECT_TRUE(other.memory == dx.memory);
        return std::vector<Bytes>{bytes_of(losses), bytes_of(lse), dx.memory};
      });
      Values dx(one.rows, one.columns, type);
      std::memcpy(dx.memory.data(), results[2].data(), dx.memory.size());
      const double unit =
          std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits));
      const auto classes = static_cast<double>(one.columns);
      double loss_sum = 0, weight_sum = 0;
      for (std::size_t i = 0; i < one.rows; ++i) {
        float loss, lse;
        std::memcpy(&loss, results[0].data() + i * 4, 4);
        std::memcpy(&lse, results[1].data() + i * 4, 4);
        double max = -1e30, sum = 0, smooth = 0, all_weights = 0;
        const auto weight = [&](std::size_t c) {
          return one.weights ? static_cast<double>(weights[c]) : 1.0;
        };
        for (std::size_t c = 0; c < one.columns; ++c) {
          max = std::max(max, x(i, c));
        }
        for (std::size_t c = 0; c < one.columns; ++c) {
          sum += std::exp(x(i, c) - max);
        }
        const double exact = max + std::log(sum);
        for (std::size_t c = 0; c < one.columns; ++c) {
          smooth += weight(c) * (exact - x(i, c));
          all_weights += weight(c);
        }
        ASSERT_NEAR(lse, exact, 1e-6 * std::fabs(exact) + 1e-6);
        if (targets[i] < 0) {
          ASSERT_EQ(loss, 0);
          for (std::size_t c = 0; c < one.columns; ++c) {
            ASSERT_EQ(dx(i, c), 0);
          }
          continue;
        }
        const auto t = static_cast<std::size_t>(targets[i]);
        const double expected =
            (1 - one.smoothing) * weight(t) * (exact - x(i, t)) +
            one.smoothing / classes * smooth + one.z_loss * exact * exact;
        ASSERT_NEAR(loss, expected, 2e-6 * std::fabs(expected) + 1e-6);
        loss_sum += static_cast<double>(loss);
        weight_sum += weight(t);
        const double a = (1 - one.smoothing) * weight(t) +
                         one.smoothing / classes * all_weights +
                         2 * one.z_loss * exact;
        for (std::size_t c = 0; c < one.columns; ++c) {
          const double p = std::exp(x(i, c) - exact);
          double d = p * a - one.smoothing / classes * weight(c);
          if (c == t) d -= (1 - one.smoothing) * weight(t);
          d *= static_cast<double>(g[i]);
          if (type == kFloat16 && std::fabs(d) > 65504) continue;
          ASSERT_NEAR(dx(i, c), d,
                      (type == kFloat32 ? 16 : 1) * std::fabs(d) * unit +
                          1e-6 * static_cast<double>(g[i]))
              << i << " " << c;
        }
      }
      EXPECT_EQ(total.loss, loss_sum);
      EXPECT_EQ(total.weight, weight_sum);
    }
  }
}

// Classes that are split between ranks: the same losses on every rank, and
// those of one rank.
TEST(Rows, LogSoftmax) {
  struct Case {
    std::size_t rows, columns;
  };
  // The last one is computed in several blocks of rows.
  for (const Case one : {Case{3, 1}, Case{33, 129}, Case{2, 50257},
                         Case{5, std::size_t{1} << 18}}) {
    for (const ScalarType type : kTypes) {
      SCOPED_TRACE(std::to_string(one.columns) + " " + format_of(type).name);
      const Values x(one.rows, one.columns, type, 23);
      const std::vector<std::int64_t> ignored(one.rows, -100);
      std::vector<float> losses(one.rows), lse(one.rows);
      cross_entropy(x.matrix, ignored.data(), losses.data(), lse.data());
      Values expected(one.rows, one.columns, type);
      for (std::size_t i = 0; i < one.rows * one.columns; ++i) {
        const FloatFormat& format = format_of(type);
        const float value =
            widen(type, x.memory.data(), i) - lse[i / one.columns];
        store_bits(format, expected.memory.data(), i,
                   type == kFloat32 ? float_to_bits(value)
                   : type == kFloat16
                       ? std::uint32_t{float16_from_float(value)}
                       : std::uint32_t{bfloat16_from_float(value)});
      }
      const std::vector<Bytes> results = expect_same([&](Machine& machine) {
        Values y(one.rows, one.columns, type), in_place = x;
        log_softmax(x.matrix, y.matrix, &machine);
        log_softmax(in_place.matrix, in_place.matrix, &machine);
        in_place.memory.back() = y.memory.back();
        EXPECT_TRUE(in_place.memory == y.memory);
        return std::vector<Bytes>{y.memory};
      });
      EXPECT_TRUE(results[0] == expected.memory);
    }
  }
}

TEST(Rows, VocabParallelCrossEntropy) {
  constexpr std::size_t kRows = 37, kColumns = 1000;
  for (const ScalarType type : kTypes) {
    for (const double smoothing : {0.0, 0.1}) {
      const Values x(kRows, kColumns, type, 23);
      const auto targets = make_targets(kRows, kColumns);
      CrossEntropyOptions options;
      options.label_smoothing = smoothing;
      std::vector<float> losses(kRows), lse(kRows), g(kRows, 3.0f);
      const CrossEntropyTotal total = cross_entropy(
          x.matrix, targets.data(), losses.data(), lse.data(), options);
      Values dx(kRows, kColumns, type);
      cross_entropy_backward(x.matrix, targets.data(), lse.data(), g.data(),
                             dx.matrix, options);
      for (const int size : {1, 2, 4}) {
        SCOPED_TRACE(std::to_string(size) + " ranks");
        run_ranks(size, [&](Communicator& ranks) {
          const std::size_t part = kColumns / static_cast<std::size_t>(size);
          const std::size_t first =
              part * static_cast<std::size_t>(ranks.rank());
          const std::size_t bytes = format_of(type).bytes;
          Values mine(kRows, part, type);
          for (std::size_t i = 0; i < kRows; ++i) {
            std::memcpy(mine.memory.data() + i * part * bytes,
                        x.memory.data() + (i * kColumns + first) * bytes,
                        part * bytes);
          }
          const VocabularyPart place{static_cast<std::int64_t>(first),
                                     kColumns};
          std::vector<float> rank_losses(kRows), rank_lse(kRows);
          const CrossEntropyTotal rank_total = vocab_parallel_cross_entropy(
              ranks, place, mine.matrix, targets.data(), rank_losses.data(),
              rank_lse.data(), options);
          EXPECT_EQ(rank_total.weight, total.weight);
          EXPECT_NEAR(rank_total.loss, total.loss, 1e-6 * total.loss);
          vocab_parallel_cross_entropy_backward(place, mine.matrix,
                                                targets.data(), rank_lse.data(),
                                                g.data(), mine.matrix, options);
          const double unit =
              std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits));
          for (std::size_t i = 0; i < kRows; ++i) {
            ASSERT_NEAR(rank_losses[i], losses[i], 2e-6f * losses[i]);
            for (std::size_t c = 0; c < part; ++c) {
              const double d = dx(i, first + c);
              ASSERT_NEAR(mine(i, c), d, std::fabs(d) * unit + 1e-6);
            }
          }
        });
      }
    }
  }
}

constexpr RowVector kNone{nullptr, kFloat32};

struct NormCase {
  const char* name;
  std::size_t rows, columns;
  bool weight, bias, zero_centered;
};
constexpr NormCase kNormCases[] = {
    {"one", 1, 1, true, true, false},
    {"plain", 65, 33, false, false, false},
    {"weight", 700, 64, true, false, false},
    {"zero-centered", 129, 129, true, true, true},
    {"many rows", 5001, 16, true, true, false},
    {"1000", 65, 1000, true, true, false},
    {"1025", 200, 1025, true, true, false},
    {"2048", 5, 2048, true, true, true},
    {"long", 5, 9000, true, true, false},
};

// Norm is one case of layer_norm() or, without a mean, rms_norm().
struct Norm {
  const NormCase& one;
  ScalarType type, weight_type;
  bool with_mean;
  Values x, gradient, weight, bias;

  Norm(const NormCase& of, ScalarType x_type, ScalarType w_type, bool mean)
      : one(of),
        type(x_type),
        weight_type(w_type),
        with_mean(mean),
        x(of.rows, of.columns, x_type, 41),
        gradient(of.rows, of.columns, x_type, 42),
        weight(1, of.columns, w_type, 43),
        bias(1, of.columns, w_type, 44) {}

  std::vector<Bytes> run(Machine& machine) const {
    const NormOptions options{1e-5, one.zero_centered};
    RowVector w = kNone, b = kNone;
    if (one.weight) w = {weight.memory.data(), weight_type};
    if (one.bias) b = {bias.memory.data(), weight_type};
    Values y(one.rows, one.columns, type), dx = gradient;
    std::vector<float> mean(one.rows), rstd(one.rows), dweight(one.columns),
        dbias(one.columns);
    if (with_mean) {
      layer_norm(x.matrix, w, b, y.matrix, mean.data(), rstd.data(), options,
                 &machine);
      layer_norm_backward(dx.matrix, x.matrix, mean.data(), rstd.data(), w,
                          dx.matrix, dweight.data(), dbias.data(), options,
                          &machine);
    } else {
      rms_norm(x.matrix, w, y.matrix, rstd.data(), options, &machine);
      rms_norm_backward(dx.matrix, x.matrix, rstd.data(), w, dx.matrix,
                        dweight.data(), options, &machine);
    }
    return {y.memory,       dx.memory,         bytes_of(mean),
            bytes_of(rstd), bytes_of(dweight), bytes_of(dbias)};
  }

  void expect_near(const std::vector<Bytes>& results) const {
    Values y(one.rows, one.columns, type), dx = y;
    std::memcpy(y.memory.data(), results[0].data(), y.memory.size());
    std::memcpy(dx.memory.data(), results[1].data(), dx.memory.size());
    std::vector<double> dweight(one.columns), dbias(one.columns),
        size(one.columns);
    const double unit =
        std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits));
    const auto n = static_cast<double>(one.columns);
    for (std::size_t i = 0; i < one.rows; ++i) {
      double mean = 0, square = 0, sum_h = 0, sum_hx = 0;
      for (std::size_t c = 0; with_mean && c < one.columns; ++c) {
        mean += x(i, c) / n;
      }
      for (std::size_t c = 0; c < one.columns; ++c) {
        square += (x(i, c) - mean) * (x(i, c) - mean) / n;
      }
      const double rstd = 1 / std::sqrt(square + 1e-5);
      const auto w = [&](std::size_t c) {
        return (one.weight ? weight(0, c) + (one.zero_centered ? 1 : 0) : 1.0);
      };
      for (std::size_t c = 0; c < one.columns; ++c) {
        const double xhat = (x(i, c) - mean) * rstd;
        double exact = xhat * w(c);
        if (with_mean && one.bias) exact += bias(0, c);
        ASSERT_NEAR(y(i, c), exact, std::fabs(exact) * unit + 1e-4);
        sum_h += gradient(i, c) * w(c) / n;
        sum_hx += gradient(i, c) * w(c) * xhat / n;
        dweight[c] += gradient(i, c) * xhat;
        dbias[c] += gradient(i, c);
        size[c] += std::fabs(gradient(i, c) * (std::fabs(xhat) + 1));
      }
      if (!with_mean) sum_h = 0;
      for (std::size_t c = 0; c < one.columns; ++c) {
        const double xhat = (x(i, c) - mean) * rstd;
        const double exact =
            rstd * (gradient(i, c) * w(c) - sum_h - xhat * sum_hx);
        ASSERT_NEAR(dx(i, c), exact,
                    std::fabs(exact) * unit + 1e-4 * rstd + 1e-4)
            << i << " " << c;
      }
    }
    for (std::size_t c = 0; c < one.columns; ++c) {
      float sums[2];
      std::memcpy(&sums[0], results[4].data() + 4 * c, 4);
      std::memcpy(&sums[1], results[5].data() + 4 * c, 4);
      ASSERT_NEAR(sums[0], dweight[c], 2e-6 * size[c]);
      const double expected = with_mean ? dbias[c] : 0;
      ASSERT_NEAR(sums[1], expected, 1e-6 * size[c]);
    }
  }
};

TEST(Rows, LayerNormAndRmsNorm) {
  for (const NormCase& one : kNormCases) {
    for (const ScalarType type : kTypes) {
      for (const bool with_mean : {true, false}) {
        std::vector<ScalarType> weight_types = {kFloat32};
        if (type != kFloat32) weight_types.push_back(type);
        for (const ScalarType weight_type : weight_types) {
          SCOPED_TRACE(std::string(one.name) + " " + format_of(type).name +
                       " " + format_of(weight_type).name +
                       (with_mean ? " layer_norm" : " rms_norm"));
          const Norm norm(one, type, weight_type, with_mean);
          norm.expect_near(
              expect_same([&](Machine& machine) { return norm.run(machine); }));
        }
      }
    }
  }
}

// The sums of 8192 rows of ones, where 16-bit sums stop at 256 or 2048.
TEST(Rows, SumsOfManyRowsAreExact) {
  constexpr std::size_t kRows = 8192, kColumns = 24;
  for (const ScalarType type : {kFloat16, kBFloat16}) {
    Values ones(kRows, kColumns, type), dx = ones;
    const std::uint16_t one = type == kFloat16 ? 0x3c00 : 0x3f80;
    for (std::size_t i = 0; i < kRows * kColumns; ++i) {
      store_bits(format_of(type), ones.memory.data(), i, one);
    }
    const std::vector<float> mean(kRows), rstd(kRows, 1.0f);
    std::vector<float> dweight(kColumns), dbias(kColumns);
    layer_norm_backward(ones.matrix, ones.matrix, mean.data(), rstd.data(),
                        kNone, dx.matrix, dweight.data(), dbias.data());
    EXPECT_EQ(dbias, std::vector<float>(kColumns, 8192.0f));
    EXPECT_EQ(dweight, std::vector<float>(kColumns, 8192.0f));
  }
}

TEST(Rows, ResidualAdd) {
  for (const std::size_t columns : {1u, 17u, 1000u, 20001u}) {
    for (const ScalarType type : kTypes) {
      for (const bool with_bias : {false, true}) {
        const std::size_t rows = columns > 1000 ? 3 : 41;
        const Values residual(rows, columns, kFloat32, 51);
        const Values x(rows, columns, type, 52), bias(1, columns, type, 53);
        RowVector vector = kNone;
        if (with_bias) vector = {bias.memory.data(), type};
        const std::vector<Bytes> results = expect_same([&](Machine& machine) {
          Values sum = residual;
          residual_add_(sum.matrix, x.matrix, vector, &machine);
          return std::vector<Bytes>{sum.memory};
        });
        for (std::size_t i = 0; i < rows * columns; ++i) {
          float sum;
          std::memcpy(&sum, results[0].data() + 4 * i, 4);
          float add = widen(type, x.memory.data(), i);
          if (with_bias) add += widen(type, bias.memory.data(), i % columns);
          ASSERT_EQ(sum, widen(kFloat32, residual.memory.data(), i) + add);
        }
      }
    }
  }
}

TEST(Rows, Errors) {
  Values x(4, 6, kFloat16, 1), y(4, 6, kFloat16), wide(4, 7, kFloat16),
      other(4, 6, kBFloat16);
  std::vector<std::int64_t> targets = {0, 5, -100, 6};
  std::vector<float> row(4);
  std::vector<std::uint8_t> mask(24);
  Matrix null{nullptr, 4, 6, kFloat16};
  Matrix odd{y.memory.data() + 1, 3, 6, kFloat16};
  Matrix unknown{y.memory.data(), 4, 6, static_cast<ScalarType>(3)};
  SoftmaxOptions both;
  both.causal_rows = 2;
  both.mask = {mask.data(), 1, 1, 4};
  SoftmaxOptions uneven;
  uneven.mask = {mask.data(), 1, 1, 3};
  SoftmaxOptions batches;
  batches.mask = {mask.data(), 3, 1, 2};
  CrossEntropyOptions smooth;
  smooth.label_smoothing = 1.5;
  const auto loss = [&](const CrossEntropyOptions& options, float* losses) {
    cross_entropy(x.matrix, targets.data(), losses, row.data(), options);
  };
  struct Row {
    std::function<void()> call;
    const char* text;
    swamp_status status;
  };
  const Row rows[] = {
      {[&] { scaled_softmax(null, y.matrix); },
       "x.data: got null, expected the address of 4 x 6 elements",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, odd); },
       "y.data: got an address that is not a multiple of 2",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(unknown, y.matrix); },
       "x.dtype: got 3 (float64), expected 0 (float16), 1 (bfloat16) or 2",
       SWAMP_UNSUPPORTED},
      {[&] { scaled_softmax(x.matrix, wide.matrix); },
       "y.columns: got 7, expected 6 (as 'x' has)", SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, other.matrix); },
       "y.dtype: got 1, expected 0 (as 'x' has)", SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, y.matrix, both); },
       "options.causal_rows: got 2, expected 0 with a mask",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, y.matrix, uneven); },
       "options.mask.query_rows: got 3, expected a divisor",
       SWAMP_INVALID_ARGUMENT},
      {[&] { scaled_softmax(x.matrix, y.matrix, batches); },
       "options.mask.batches: got 3, expected 1 or 2", SWAMP_INVALID_ARGUMENT},
      {[&] { loss({}, row.data()); },
       "targets[3]: got 6, expected a class from 0 to 6 - 1",
       SWAMP_INVALID_ARGUMENT},
      {[&] { loss(smooth, row.data()); }, "options.label_smoothing: got 1.5",
       SWAMP_INVALID_ARGUMENT},
      {[&] {
         targets[3] = 1;
         loss({}, nullptr);
       },
       "losses: got null, expected the address of 4 values",
       SWAMP_INVALID_ARGUMENT},
      {[&] { log_softmax(x.matrix, wide.matrix); },
       "y.columns: got 7, expected 6 (as 'x' has)", SWAMP_INVALID_ARGUMENT},
      {[&] {
         CrossEntropyOptions weighted;
         weighted.class_weights = row.data();
         vocab_parallel_cross_entropy_backward({6, 12}, x.matrix,
                                               targets.data(), row.data(),
                                               row.data(), y.matrix, weighted);
       },
       "options.class_weights: got an array, expected null", SWAMP_UNSUPPORTED},
  };
  const Bytes before = y.memory;
  for (const Row& one : rows) {
    EXPECT_TRUE(has_words(error_of(one.call, one.status), {one.text}));
  }
  EXPECT_TRUE(y.memory == before);
  EXPECT_EQ(row, std::vector<float>(4));
}

// A row that fits in neither way, and rows and columns of 0.
TEST(Rows, LdmAndEmpty) {
  MachineConfig config;
  config.transfer = "copy";
  config.ldm_bytes = 8 * 1024;
  Machine machine(config);
  Values x(2, 5000, kFloat32, 3);
  EXPECT_TRUE(has_words(
      error_of([&] { scaled_softmax(x.matrix, x.matrix, {}, &machine); },
               SWAMP_UNSUPPORTED),
      {"x: got rows of 20000 bytes", "a slave has 8192 (SWAMP_LDM_BYTES)"}));
  const Matrix none{nullptr, 0, 5, kFloat16};
  const Matrix narrow{nullptr, 5, 0, kFloat16};
  for (const Matrix& empty : {none, narrow}) {
    scaled_softmax(empty, empty, {}, &machine);
    scaled_softmax_backward(empty, empty, empty, {}, &machine);
  }
  EXPECT_EQ(cross_entropy(none, nullptr, nullptr, nullptr).weight, 0);
}

}  // namespace
}  // namespace swamp::test
