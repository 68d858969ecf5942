// Cross entropy and log-softmax: values, and classes that are split between
// ranks. The golden records are in rows_golden_test.cpp, the same bits on every
// machine in operators_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "row_values.h"
#include "support/thread_communicator.h"

namespace swamp::test {
namespace {

std::vector<std::int64_t> make_targets(std::size_t rows, std::size_t columns) {
  std::vector<std::int64_t> targets(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    targets[i] =
        i % 5 == 2 ? -100 : static_cast<std::int64_t>(i * 7919 % columns);
  }
  return targets;
}

// By hand: class weights, smoothing and z-loss, which the golden records lack.
TEST(Rows, CrossEntropyOptionsByHand) {
  float x[] = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};  // sum 8
  const std::int64_t target = 1;
  const float weights[] = {1, 3, 0.5f};
  float loss = 0, lse = 0, low = 0, dx[3];
  CrossEntropyOptions options;
  options.class_weights = weights;
  options.label_smoothing = 0.3;
  options.z_loss = 0.01;
  const Matrix logits{x, 1, 3, kFloat32};
  const CrossEntropyTotal total =
      cross_entropy(logits, &target, &loss, &lse, &low, options);
  EXPECT_EQ(total.loss, static_cast<double>(loss));
  EXPECT_EQ(total.weight, 3);
  float same = 0, only = 0;
  cross_entropy(logits, &target, &same, &only, nullptr, options);
  EXPECT_EQ(same, loss);
  EXPECT_EQ(only, lse);
  const double log_8 = std::log(8.0), log_4 = std::log(4.0);
  EXPECT_NEAR(static_cast<double>(lse) + static_cast<double>(low), log_8, 1e-7);
  const double smooth = log_8 + 3 * log_4 + 0.5 * std::log(1.6);
  EXPECT_NEAR(loss, 0.7 * 3 * log_4 + 0.1 * smooth + 0.01 * log_8 * log_8,
              2e-6);
  const float gradient = 2;
  float rough[3];
  const float zero = 0;
  cross_entropy_backward(logits, &target, &lse, nullptr, &gradient,
                         {rough, 1, 3, kFloat32}, options);
  cross_entropy_backward(logits, &target, &lse, &zero, &gradient,
                         {dx, 1, 3, kFloat32}, options);
  EXPECT_EQ(std::memcmp(dx, rough, sizeof dx), 0);
  cross_entropy_backward(logits, &target, &lse, &low, &gradient,
                         {dx, 1, 3, kFloat32}, options);
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
    std::vector<float> losses(3, 7), lse(3, 7), low(3, 7);
    const CrossEntropyTotal total = cross_entropy(
        none, targets.data(), losses.data(), lse.data(), low.data(), options);
    EXPECT_EQ(total.loss, 0);
    EXPECT_EQ(total.weight, 0);
    EXPECT_EQ(losses, std::vector<float>(3, 0));
    EXPECT_EQ(lse, std::vector<float>(3, -HUGE_VALF));
    EXPECT_EQ(low, std::vector<float>(3, 0));
    cross_entropy_backward(none, targets.data(), lse.data(), low.data(),
                           losses.data(), none, options);
  }
}

// Classes that are split between ranks: the same losses on every rank, and
// those of one rank.
TEST(Rows, VocabParallelCrossEntropy) {
  constexpr std::size_t kRows = 37, kColumns = 1000;
  for (const ScalarType type : kRowTypes) {
    for (const double smoothing : {0.0, 0.1}) {
      Values x(kRows, kColumns, type, 23);
      const auto targets = make_targets(kRows, kColumns);
      // The second of two ranks has no class of a row. Smoothed, its loss is
      // inf.
      for (std::size_t c = kColumns / 2; smoothing == 0 && c < kColumns; ++c) {
        store_value(type, x.memory.data(), 8 * kColumns + c, -HUGE_VALF);
      }
      CrossEntropyOptions options;
      options.label_smoothing = smoothing;
      std::vector<float> losses(kRows), lse(kRows), low(kRows), g(kRows, 3.0f);
      const CrossEntropyTotal total =
          cross_entropy(x.matrix, targets.data(), losses.data(), lse.data(),
                        low.data(), options);
      Values dx(kRows, kColumns, type);
      cross_entropy_backward(x.matrix, targets.data(), lse.data(), low.data(),
                             g.data(), dx.matrix, options);
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
          std::vector<float> rank_losses(kRows), rank_lse(kRows),
              rank_low(kRows);
          const CrossEntropyTotal rank_total = vocab_parallel_cross_entropy(
              ranks, place, mine.matrix, targets.data(), rank_losses.data(),
              rank_lse.data(), rank_low.data(), options);
          EXPECT_EQ(rank_total.weight, total.weight);
          EXPECT_NEAR(rank_total.loss, total.loss, 1e-6 * total.loss);
          vocab_parallel_cross_entropy_backward(
              place, mine.matrix, targets.data(), rank_lse.data(),
              rank_low.data(), g.data(), mine.matrix, options);
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

// Logits of any size: the exact loss and gradient, from differences from the
// largest logit in double. PyTorch's error is 4.5e-8 at logits of 100. With two
// ranks, each has half of the classes.
TEST(Rows, LargeLogits) {
  constexpr std::size_t kColumnCounts[] = {1, 2, 3, 1000, 4100, 9000};
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const float base :
       {0.0f, 100.0f, -1e4f, 1e7f, -1e8f, 1e8f, 1e30f, kLargest}) {
    for (const std::size_t columns : kColumnCounts) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const bool weighted : {false, true}) {
          SCOPED_TRACE(std::to_string(base) + " " + std::to_string(columns) +
                       " " + std::to_string(smoothing) +
                       (weighted ? " weighted" : ""));
          Values x(1, columns, kFloat32);
          auto* logits = static_cast<float*>(x.matrix.data);
          std::vector<float> weights(columns);
          double weight_sum = 0, max = -HUGE_VAL;
          for (std::size_t c = 0; c < columns; ++c) {
            logits[c] = base == kLargest
                            ? base
                            : base + 0.5f * static_cast<float>(c % 7);
            weights[c] =
                weighted ? 0.5f + 0.25f * static_cast<float>(c % 3) : 1;
            weight_sum += static_cast<double>(weights[c]);
            max = std::max(max, static_cast<double>(logits[c]));
          }
          double sum = 0, smooth = 0;
          for (std::size_t c = 0; c < columns; ++c) {
            sum += std::exp(static_cast<double>(logits[c]) - max);
          }
          const auto log_p = [&](std::size_t c) {
            return static_cast<double>(logits[c]) - max - std::log(sum);
          };
          for (std::size_t c = 0; c < columns; ++c) {
            smooth -= static_cast<double>(weights[c]) * log_p(c);
          }
          const std::size_t target = columns / 2;
          const auto number = static_cast<double>(columns);
          const double b =
              (1 - smoothing) * static_cast<double>(weights[target]);
          const double loss = -b * log_p(target) + smoothing / number * smooth;
          const auto gradient = [&](std::size_t c) {
            return std::exp(log_p(c)) * (b + smoothing / number * weight_sum) -
                   smoothing / number * static_cast<double>(weights[c]) -
                   (c == target ? b : 0);
          };
          CrossEntropyOptions options;
          options.label_smoothing = smoothing;
          if (weighted) options.class_weights = weights.data();
          const auto wanted = static_cast<std::int64_t>(target);
          const float one = 1;
          const auto check = [&](float found, const Values& dx,
                                 std::size_t first) {
            EXPECT_NEAR(found, loss, 1e-6 * loss);
            for (std::size_t c = 0; c < dx.matrix.columns; ++c) {
              ASSERT_NEAR(dx(0, c), gradient(first + c), 1.2e-7) << first + c;
            }
          };
          float found, lse, low;
          Values dx(1, columns, kFloat32), y(1, columns, kFloat32);
          cross_entropy(x.matrix, &wanted, &found, &lse, &low, options);
          cross_entropy_backward(x.matrix, &wanted, &lse, &low, &one, dx.matrix,
                                 options);
          check(found, dx, 0);
          log_softmax(x.matrix, y.matrix);
          for (std::size_t c = 0; c < columns; ++c) {
            EXPECT_NEAR(y(0, c), log_p(c), -2e-7 * log_p(c)) << c;
          }
          const Matrix factors{weights.data(), 1, columns, kFloat32};
          log_softmax_backward(factors, y.matrix, y.matrix);
          for (std::size_t c = 0; c < columns; ++c) {
            const auto g = static_cast<double>(weights[c]);
            EXPECT_NEAR(y(0, c), g - std::exp(log_p(c)) * weight_sum,
                        1e-6 * (g + 1))
                << c;
          }
          if (weighted || columns % 2 != 0) continue;
          run_ranks(2, [&](Communicator& ranks) {
            const std::size_t part = columns / 2;
            const std::size_t first =
                static_cast<std::size_t>(ranks.rank()) * part;
            const Matrix mine{logits + first, 1, part, kFloat32};
            const VocabularyPart place{static_cast<std::int64_t>(first),
                                       columns};
            float part_loss, part_lse, part_low;
            Values part_dx(1, part, kFloat32);
            vocab_parallel_cross_entropy(ranks, place, mine, &wanted,
                                         &part_loss, &part_lse, &part_low,
                                         options);
            vocab_parallel_cross_entropy_backward(place, mine, &wanted,
                                                  &part_lse, &part_low, &one,
                                                  part_dx.matrix, options);
            check(part_loss, part_dx, first);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
