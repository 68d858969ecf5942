// Cross entropy and log-softmax: the same bits on every machine, and with
// classes that are split between ranks. The golden records are in
// rows_golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "row_values.h"
#include "support/thread_communicator.h"

namespace swamp::test {
namespace {

struct CrossEntropyCase {
  const char* name;
  std::size_t rows, columns;
  double smoothing, z_loss;
  bool weights;
};
constexpr CrossEntropyCase kCrossEntropyCases[] = {
    {"one class", 3, 1, 0, 0, false},
    {"finite", 2, 1000, 0, 1e-4, true},
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

TEST(Rows, CrossEntropy) {
  for (const CrossEntropyCase& one : kCrossEntropyCases) {
    for (const ScalarType type : kRowTypes) {
      SCOPED_TRACE(std::string(one.name) + " " + format_of(type).name);
      const Values x = with_special_rows(one.rows, one.columns, type, 17);
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
        EXPECT_TRUE(other.bits() == dx.bits());
        return std::vector<Bytes>{bits_of(losses), bits_of(lse), dx.bits()};
      });
      double loss_sum = 0, weight_sum = 0;
      for (std::size_t i = 0; i < one.rows; ++i) {
        float loss;
        std::memcpy(&loss, results[0].data() + i * 4, 4);
        loss_sum += static_cast<double>(loss);
        if (targets[i] < 0) continue;
        const auto t = static_cast<std::size_t>(targets[i]);
        weight_sum += one.weights ? static_cast<double>(weights[t]) : 1;
      }
      EXPECT_TRUE(std::isnan(loss_sum) ? std::isnan(total.loss)
                                       : total.loss == loss_sum)
          << total.loss << " " << loss_sum;
      EXPECT_EQ(total.weight, weight_sum);
    }
  }
}

// By hand: class weights, smoothing and z-loss, which the golden records lack.
TEST(Rows, CrossEntropyOptionsByHand) {
  float x[] = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};  // sum 8
  const std::int64_t target = 1;
  const float weights[] = {1, 3, 0.5f};
  float loss = 0, lse = 0, dx[3];
  CrossEntropyOptions options;
  options.class_weights = weights;
  options.label_smoothing = 0.3;
  options.z_loss = 0.01;
  const Matrix logits{x, 1, 3, kFloat32};
  cross_entropy(logits, &target, &loss, &lse, options);
  const double log_8 = std::log(8.0), log_4 = std::log(4.0);
  EXPECT_NEAR(lse, log_8, 1e-6);
  const double smooth = log_8 + 3 * log_4 + 0.5 * std::log(1.6);
  EXPECT_NEAR(loss, 0.7 * 3 * log_4 + 0.1 * smooth + 0.01 * log_8 * log_8,
              2e-6);
  const float gradient = 2;
  cross_entropy_backward(logits, &target, &lse, &gradient, {dx, 1, 3, kFloat32},
                         options);
  const double a = 0.7 * 3 + 0.1 * 4.5 + 2 * 0.01 * log_8;
  for (int c = 0; c < 3; ++c) {
    const double p = (c == 0 ? 1 : c == 1 ? 2 : 5) / 8.0;
    const double d = p * a - 0.1 * static_cast<double>(weights[c]);
    EXPECT_NEAR(dx[c], 2 * (c == 1 ? d - 0.7 * 3 : d), 2e-6) << c;
  }
}

// Without classes, every row is ignored.
TEST(Rows, CrossEntropyWithoutClasses) {
  const std::vector<std::int64_t> targets(3, -100);
  const Matrix none{nullptr, 3, 0, kFloat32};
  for (const double smoothing : {0.0, 0.1}) {
    CrossEntropyOptions options;
    options.label_smoothing = smoothing;
    std::vector<float> losses(3, 7), lse(3, 7);
    const CrossEntropyTotal total =
        cross_entropy(none, targets.data(), losses.data(), lse.data(), options);
    EXPECT_EQ(total.loss, 0);
    EXPECT_EQ(total.weight, 0);
    EXPECT_EQ(losses, std::vector<float>(3, 0));
    EXPECT_EQ(lse, std::vector<float>(3, -HUGE_VALF));
    cross_entropy_backward(none, targets.data(), lse.data(), losses.data(),
                           none, options);
  }
}

TEST(Rows, LogSoftmax) {
  struct Case {
    std::size_t rows, columns;
  };
  // The last one is computed in several groups of rows.
  for (const Case one : {Case{3, 1}, Case{33, 129}, Case{2, 50257},
                         Case{5, std::size_t{1} << 18}}) {
    for (const ScalarType type : kRowTypes) {
      SCOPED_TRACE(std::to_string(one.columns) + " " + format_of(type).name);
      const Values x(one.rows, one.columns, type, 23);
      const std::vector<std::int64_t> ignored(one.rows, -100);
      std::vector<float> losses(one.rows), lse(one.rows);
      cross_entropy(x.matrix, ignored.data(), losses.data(), lse.data());
      Values expected(one.rows, one.columns, type);
      for (std::size_t i = 0; i < one.rows * one.columns; ++i) {
        const float value =
            widen(type, x.memory.data(), i) - lse[i / one.columns];
        store_value(type, expected.memory.data(), i, value);
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

// Classes that are split between ranks: the same losses on every rank, and
// those of one rank.
TEST(Rows, VocabParallelCrossEntropy) {
  constexpr std::size_t kRows = 37, kColumns = 1000;
  for (const ScalarType type : kRowTypes) {
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
      for (const int size : {1, 2, 3, 4}) {
        SCOPED_TRACE(std::to_string(size) + " ranks");
        run_ranks(size, [&](Communicator& ranks) {
          const auto rank = static_cast<std::size_t>(ranks.rank());
          // Of three ranks, the last one has no classes.
          const auto parts = static_cast<std::size_t>(size == 3 ? 2 : size);
          const std::size_t part = rank < parts ? kColumns / parts : 0;
          const std::size_t first = rank < parts ? part * rank : kColumns;
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

}  // namespace
}  // namespace swamp::test
