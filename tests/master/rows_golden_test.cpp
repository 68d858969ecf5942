// The row operators against records of Megatron-LM's own functions, PyTorch's,
// and an oracle of 60 digits: tests/golden/rows/record.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "golden.h"
#include "machines.h"
#include "support/formats.h"
#include "support/thread_communicator.h"
#include "swamp/moe.h"
#include "swamp/rows.h"

namespace swamp::test {
namespace {

// Elements is a matrix of recorded words.
struct Elements {
  std::vector<std::uint32_t> memory;  // wide enough for any dtype
  Matrix matrix;

  Elements(ScalarType type, std::size_t rows, std::size_t columns)
      : memory(rows * columns + 1),
        matrix{memory.data(), rows, columns, type} {}
  Elements(ScalarType type, std::size_t rows, std::size_t columns,
           const std::vector<std::uint32_t>& words)
      : Elements(type, rows, columns) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      store_bits(format_of(type), memory.data(), i, words[i]);
    }
  }
  Elements(const Elements&) = delete;

  std::uint32_t word(std::size_t i) const {
    return static_cast<std::uint32_t>(
        load_bits(format_of(matrix.dtype), memory.data(), i));
  }
};

double value_of(ScalarType type, std::uint32_t word) {
  return test::value_of(format_of(type), word);
}

double unit_of(ScalarType type) {
  return std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits) - 1);
}

SoftmaxOptions options_of(const SoftmaxRecord& record) {
  SoftmaxOptions options;
  options.scale = record.scale;
  options.round_scale = options.zero_masked_rows = record.apex;
  if (record.causal) options.causal_rows = record.columns;
  if (!record.mask.empty()) {
    options.mask = {record.mask.data(), 1, 1, record.rows};
  }
  return options;
}

void check_softmax(const SoftmaxRecord& record, Machine& machine) {
  const Elements x(record.type, record.rows, record.columns, record.scores);
  const Elements y(record.type, record.rows, record.columns);
  scaled_softmax(x.matrix, y.matrix, options_of(record), &machine);
  for (const SoftmaxRecord::Row& row : record.kept) {
    for (std::size_t j = 0; j < record.columns; j += record.step) {
      const std::uint32_t word = y.word(row.row * record.columns + j);
      if (row.is_nan) {
        ASSERT_TRUE(std::isnan(value_of(record.type, word)))
            << row.row << " " << j;
        continue;
      }
      const auto& admissible = row.words.at(j / record.step);
      ASSERT_TRUE(std::find(admissible.begin(), admissible.end(), word) !=
                  admissible.end())
          << "row " << row.row << " column " << j << ": got "
          << value_of(record.type, word) << ", expected "
          << value_of(record.type, admissible[0]);
    }
  }
}

// Megatron-LM's backward has probabilities that were not rounded to 16 bits.
// Their rounding changes each of the terms, which cancel, by one unit.
void check_softmax_backward(const SoftmaxRecord& record, Machine& machine) {
  const SoftmaxOptions options = options_of(record);
  const Elements x(record.type, record.rows, record.columns, record.scores);
  const Elements g(record.type, record.rows, record.columns, record.grads);
  const Elements y(record.type, record.rows, record.columns);
  const Elements dx(record.type, record.rows, record.columns);
  scaled_softmax(x.matrix, y.matrix, options, &machine);
  scaled_softmax_backward(g.matrix, y.matrix, dx.matrix, options, &machine);
  const double unit = unit_of(record.type);
  for (std::size_t i = 0; i < record.rows; ++i) {
    const auto at = [&](const Elements& elements, std::size_t j) {
      return value_of(record.type, elements.word(i * record.columns + j));
    };
    double sum = 0;
    for (std::size_t j = 0; j < record.columns; ++j) {
      sum += std::fabs(at(g, j) * at(y, j));
    }
    for (std::size_t j = 0; j < record.columns; ++j) {
      const double expected =
          value_of(record.type, record.gradient[i * record.columns + j]);
      const double terms = static_cast<double>(record.scale) * at(y, j) *
                           (std::fabs(at(g, j)) + sum);
      ASSERT_NEAR(at(dx, j), expected,
                  unit * (2 * std::fabs(expected) + 2 * terms) + 1e-7)
          << i << " " << j;
    }
  }
}

TEST(RowsGolden, Softmax) {
  // A row of 16384 columns takes one visit in 256 KiB and two in 64 KiB.
  MachineConfig small;
  small.core_groups = 1;
  small.slaves_per_group = 3;
  small.transfer = "copy";
  small.ldm_bytes = 64 * 1024;
  const auto two_visits = make_machine(small);
  const auto plain = make_machine(MachineConfig{});
  int forward = 0, backward = 0;
  for (const SoftmaxRecord& record : read_softmax_records()) {
    SCOPED_TRACE(record.text);
    for (Machine* machine : {plain.get(), two_visits.get()}) {
      if (record.gradient.empty()) {
        check_softmax(record, *machine);
      } else {
        check_softmax_backward(record, *machine);
      }
      if (HasFatalFailure()) return;
    }
    ++(record.gradient.empty() ? forward : backward);
  }
  EXPECT_EQ(forward, 230);
  EXPECT_EQ(backward, 6);
}

// near() compares a gradient with a recorded one. Both are computed in float32
// and rounded to the dtype; `g` is the gradient of the loss.
void expect_near(ScalarType type, std::uint32_t word, std::uint32_t recorded,
                 double g) {
  const double expected = value_of(type, recorded);
  if (std::isinf(expected)) {
    ASSERT_EQ(word, recorded);
    return;
  }
  const double rounding = type == kFloat32 ? 0 : 2 * unit_of(type);
  ASSERT_NEAR(value_of(type, word), expected,
              std::fabs(expected) * rounding + std::fabs(g) * 1e-6);
}

// check_rank() compares the results of rank `first / columns`.
void check_rank(const CrossEntropyRecord& record, std::size_t rank,
                Communicator* ranks) {
  const std::size_t parts = std::max<std::size_t>(1, record.gradient.size());
  const std::size_t columns = record.classes / parts, first = rank * columns;
  std::vector<std::uint32_t> mine;
  for (std::size_t i = 0; i < record.rows; ++i) {
    const auto row = record.logits.begin() +
                     static_cast<std::ptrdiff_t>(i * record.classes + first);
    mine.insert(mine.end(), row, row + static_cast<std::ptrdiff_t>(columns));
  }
  const Elements x(record.type, record.rows, columns, mine);
  const Elements dx(record.type, record.rows, columns);
  std::vector<float> losses(record.rows), lse(record.rows), low(record.rows);
  CrossEntropyOptions options;
  options.label_smoothing = record.smoothing;
  if (ranks == nullptr) {
    cross_entropy(x.matrix, record.targets.data(), losses.data(), lse.data(),
                  low.data(), options);
    cross_entropy_backward(x.matrix, record.targets.data(), lse.data(),
                           low.data(), record.grads.data(), dx.matrix, options);
  } else {
    options.megatron_smoothing = true;
    const VocabularyPart part{static_cast<std::int64_t>(first), record.classes};
    vocab_parallel_cross_entropy(*ranks, part, x.matrix, record.targets.data(),
                                 losses.data(), lse.data(), low.data(),
                                 options);
    vocab_parallel_cross_entropy_backward(
        part, x.matrix, record.targets.data(), lse.data(), low.data(),
        record.grads.data(), dx.matrix, options);
  }
  for (std::size_t i = 0; i < record.rows; ++i) {
    const double loss = value_of(kFloat32, record.losses[rank][i]);
    ASSERT_NEAR(losses[i], loss, 1e-6 * loss + 1e-6) << "row " << i;
    for (std::size_t c = 0; c < columns; ++c) {
      SCOPED_TRACE("row " + std::to_string(i) + " class " +
                   std::to_string(first + c));
      expect_near(record.type, dx.word(i * columns + c),
                  record.gradient[rank][i * columns + c], record.grads[i]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RowsGolden, CrossEntropy) {
  const std::vector<CrossEntropyRecord> records = read_cross_entropy_records();
  EXPECT_EQ(records.size(), 30u);
  for (const CrossEntropyRecord& record : records) {
    SCOPED_TRACE(format_of(record.type).name + std::string(", ") +
                 std::to_string(record.ranks) + " ranks, " +
                 std::to_string(record.classes) + " classes, smoothing " +
                 std::to_string(record.smoothing));
    if (record.ranks == 0) {
      check_rank(record, 0, nullptr);
    } else {
      run_ranks(record.ranks, [&](Communicator& ranks) {
        check_rank(record, static_cast<std::size_t>(ranks.rank()), &ranks);
      });
    }
    if (HasFailure()) return;
  }
}

// ---- Mixtures of experts

using Integers = std::vector<std::int64_t>;

Integers counts_of(const MoeRecord& record,
                   const std::vector<std::uint8_t>& map) {
  Integers counts(record.experts);
  moe_histogram(
      {map.data(), ExpertChoices::kMap, record.tokens, record.experts},
      counts.data());
  return counts;
}

// tokens_of() returns the token of each permuted row.
Integers tokens_of(const MoeRecord& record,
                   const std::vector<std::uint8_t>& map, std::size_t rows,
                   std::size_t rows_per_expert) {
  const ExpertChoices choices{map.data(), ExpertChoices::kMap, record.tokens,
                              record.experts};
  std::vector<std::int32_t> positions(map.size());
  moe_positions(choices, -1, positions.data());
  Integers entries(rows);
  EXPECT_EQ(moe_permutation(choices, positions.data(), rows_per_expert, rows,
                            entries.data()),
            rows);
  for (std::int64_t& one : entries) {
    one /= static_cast<std::int64_t>(record.experts);
  }
  return entries;
}

TEST(RowsGolden, MixturesOfExperts) {
  const std::vector<MoeRecord> records = read_moe_records();
  EXPECT_EQ(records.size(), 4u);
  for (const MoeRecord& record : records) {
    EXPECT_EQ(counts_of(record, record.map), record.counts);
    EXPECT_EQ(tokens_of(record, record.map, record.token_of.size(), 0),
              record.token_of);
    const Matrix probs{const_cast<float*>(record.probs.data()), record.tokens,
                       record.experts, kFloat32};
    EXPECT_EQ(record.drops.size(), 4u);
    for (const MoeRecord::Drop& drop : record.drops) {
      SCOPED_TRACE(testing::Message()
                   << record.tokens << " tokens, capacity " << drop.capacity);
      std::vector<std::uint8_t> kept(record.map.size());
      moe_apply_capacity(probs, record.map.data(),
                         {drop.capacity, DropPolicy::probs, false},
                         kept.data());
      EXPECT_EQ(kept, drop.by_probs);
      moe_apply_capacity(probs, record.map.data(),
                         {drop.capacity, DropPolicy::position, false},
                         kept.data());
      EXPECT_EQ(counts_of(record, kept), drop.by_position);
      if (drop.padded.empty()) continue;

      // Megatron-LM leaves open which tokens fill an expert: its own map.
      const auto capacity = static_cast<std::size_t>(drop.capacity);
      std::vector<std::uint8_t> full(record.map.size());
      for (std::size_t r = 0; r < drop.padded.size(); ++r) {
        full[static_cast<std::size_t>(drop.padded[r]) * record.experts +
             r / capacity] = 1;
      }
      EXPECT_EQ(tokens_of(record, full, drop.padded.size(), capacity),
                drop.padded);
      moe_apply_capacity(probs, record.map.data(),
                         {drop.capacity, DropPolicy::probs, true}, kept.data());
      EXPECT_EQ(counts_of(record, kept), counts_of(record, full));
      for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_TRUE(kept[i] == full[i] || record.map[i] == 0) << i;
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
