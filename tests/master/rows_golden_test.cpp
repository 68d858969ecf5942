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

double value_of(ScalarType type, std::uint32_t word) {
  return test::value_of(format_of(type), word);
}

double unit_of(ScalarType type) {
  return std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits) - 1);
}

// SoftmaxRecord is a line of rows/softmax.jsonl: [rows, columns], of which row
// i begins with word 389 i of the shared scores.
struct SoftmaxRecord {
  SoftmaxRecord(const Json& shared, const Json& given)
      : line(given),
        type(type_of(line.at("dtype"))),
        rows(line.at("rows")),
        columns(line.at("columns")),
        x(matrix(shared, "scores")),
        y(type, rows * columns) {
    const std::string kind = line.at("mask");
    options.scale = floats(line.at("scale")).at(0);
    options.round_scale = options.zero_masked_rows = line.at("apex");
    if (kind == "causal") options.causal_rows = columns;
    if (kind == "none" || kind == "causal") return;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        const bool some = (7 * i + 13 * j) % 5 == 0;
        mask.push_back(some || (kind == "row" && i == 1) ? 1 : 0);
      }
    }
    options.mask = {mask.data(), 1, 1, rows};
  }
  Elements matrix(const Json& shared, const char* kind) const {
    const auto base = words(shared.at("scores")
                                .at(line.at("dtype").get<std::string>())
                                .at(line.at(kind).get<std::string>()),
                            type);
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        all.push_back(base[(389 * i + j) % base.size()]);
      }
    }
    return {type, all};
  }

  const Json& line;
  ScalarType type;
  std::size_t rows, columns;
  Elements x, y;
  std::vector<std::uint8_t> mask;
  SoftmaxOptions options;
};

// Of some rows every step-th column is kept: its word, and perhaps another one
// that is admissible.
void check_softmax(SoftmaxRecord& record, Machine& machine) {
  const Json& line = record.line;
  scaled_softmax(record.x.matrix(record.rows), record.y.matrix(record.rows),
                 record.options, &machine);
  const std::size_t step = line.at("step");
  for (std::size_t r = 0; r < line.at("kept").size(); ++r) {
    const std::size_t row = line.at("kept").at(r);
    const Json& text = line.at("words").at(r);
    std::vector<std::uint32_t> expected;
    if (text != "nan") expected = words(text, record.type);
    for (std::size_t j = 0; j < record.columns; j += step) {
      const std::size_t at = row * record.columns + j;
      if (expected.empty()) {
        ASSERT_TRUE(std::isnan(record.y.value(at))) << row << " " << j;
        continue;
      }
      bool is_admissible = record.y.bits(at) == expected.at(j / step);
      for (const Json& other : line.at("other")) {
        is_admissible =
            is_admissible ||
            (other.at(0) == r && other.at(1) == j / step &&
             words(other.at(2), record.type).at(0) == record.y.bits(at));
      }
      ASSERT_TRUE(is_admissible)
          << "row " << row << " column " << j << ": got " << record.y.value(at)
          << ", expected " << value_of(record.type, expected.at(j / step));
    }
  }
}

// Megatron-LM's backward has probabilities that were not rounded to 16 bits.
// Their rounding changes each of the terms, which cancel, by one unit.
void check_softmax_backward(SoftmaxRecord& record, Elements g,
                            Machine& machine) {
  const std::size_t rows = record.rows, columns = record.columns;
  const Elements& y = record.y;
  Elements dx(record.type, rows * columns);
  scaled_softmax(record.x.matrix(rows), record.y.matrix(rows), record.options,
                 &machine);
  scaled_softmax_backward(g.matrix(rows), record.y.matrix(rows),
                          dx.matrix(rows), record.options, &machine);
  const auto gradient = words(record.line.at("gradient"), record.type);
  const double unit = unit_of(record.type);
  for (std::size_t i = 0; i < rows * columns; i += columns) {
    double sum = 0;
    for (std::size_t j = i; j < i + columns; ++j) {
      sum += std::fabs(g.value(j) * y.value(j));
    }
    for (std::size_t j = i; j < i + columns; ++j) {
      const double expected = value_of(record.type, gradient[j]);
      const double terms = static_cast<double>(record.options.scale) *
                           y.value(j) * (std::fabs(g.value(j)) + sum);
      ASSERT_NEAR(dx.value(j), expected,
                  unit * (2 * std::fabs(expected) + 2 * terms) + 1e-7)
          << j;
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
  const std::vector<Json> lines = read_golden("rows/softmax.jsonl");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    SCOPED_TRACE("line " + std::to_string(i + 1));
    const bool is_backward = lines[i].contains("grads");
    for (Machine* machine : {plain.get(), two_visits.get()}) {
      SoftmaxRecord record(lines[0], lines[i]);
      if (is_backward) {
        check_softmax_backward(record, record.matrix(lines[0], "grads"),
                               *machine);
      } else {
        check_softmax(record, *machine);
      }
      if (HasFatalFailure()) return;
    }
    ++(is_backward ? backward : forward);
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

// CrossEntropyRecord is a line of rows/cross_entropy.jsonl: PyTorch's function
// of logits that are 0, or Megatron-LM's ranks.
struct CrossEntropyRecord {
  CrossEntropyRecord(const Json& shared, const Json& line) {
    if (line.contains("zeros")) {
      logits.resize(line.at("zeros").get<std::size_t>());
      grads = {line.at("grad")};
      losses = {words(line.at("loss"), kFloat32)};
      // Those of the target and of another logit.
      const auto two = words(line.at("gradient").at(0), type);
      gradient.assign(1, std::vector<std::uint32_t>(logits.size(), two.at(1)));
      gradient[0][0] = two.at(0);
      return;
    }
    ranks = line.at("ranks");
    type = type_of(line.at("dtype"));
    logits = words(shared.at("logits").at(line.at("dtype").get<std::string>()),
                   type);
    shared.at("targets").get_to(targets);
    grads = floats(shared.at("grads"));
    smoothing = line.at("smoothing");
    for (const Json& one : line.at("losses")) {
      losses.push_back(words(one, kFloat32));
    }
    for (const Json& one : line.at("gradient")) {
      gradient.push_back(words(one, type));
    }
  }
  int ranks = 0;  // 0: PyTorch's function
  ScalarType type = kFloat16;
  std::vector<std::uint32_t> logits;
  std::vector<std::int64_t> targets = {0};
  std::vector<float> grads;  // of the losses
  double smoothing = 0;
  std::vector<std::vector<std::uint32_t>> losses, gradient;  // by rank
};

// check_rank() compares the results of one rank.
void check_rank(const CrossEntropyRecord& record, std::size_t rank,
                Communicator* ranks) {
  const std::size_t rows = record.targets.size(),
                    classes = record.logits.size() / rows,
                    columns = classes / record.gradient.size(),
                    first = rank * columns;
  Elements x(record.type, rows * columns), dx = x;
  for (std::size_t i = 0; i < x.count(); ++i) {
    x.set_bits(i, record.logits[i / columns * classes + first + i % columns]);
  }
  std::vector<float> losses(rows), lse(rows), low(rows);
  CrossEntropyOptions options;
  options.label_smoothing = record.smoothing;
  const std::int64_t* const targets = record.targets.data();
  if (ranks == nullptr) {
    cross_entropy(x.matrix(rows), targets, losses.data(), lse.data(),
                  low.data(), options);
    cross_entropy_backward(x.matrix(rows), targets, lse.data(), low.data(),
                           record.grads.data(), dx.matrix(rows), options);
  } else {
    options.megatron_smoothing = true;
    const VocabularyPart part{static_cast<std::int64_t>(first), classes};
    vocab_parallel_cross_entropy(*ranks, part, x.matrix(rows), targets,
                                 losses.data(), lse.data(), low.data(),
                                 options);
    vocab_parallel_cross_entropy_backward(
        part, x.matrix(rows), targets, lse.data(), low.data(),
        record.grads.data(), dx.matrix(rows), options);
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const double loss = value_of(kFloat32, record.losses[rank][i]);
    ASSERT_NEAR(losses[i], loss, 1e-6 * loss + 1e-6) << "row " << i;
  }
  for (std::size_t i = 0; i < dx.count(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i / columns) + " class " +
                 std::to_string(first + i % columns));
    expect_near(record.type, static_cast<std::uint32_t>(dx.bits(i)),
                record.gradient[rank][i], record.grads[i / columns]);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(RowsGolden, CrossEntropy) {
  const std::vector<Json> lines = read_golden("rows/cross_entropy.jsonl");
  EXPECT_EQ(lines.size(), 31u);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    SCOPED_TRACE("line " + std::to_string(i + 1));
    const CrossEntropyRecord record(lines[0], lines[i]);
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
using Map = std::vector<std::uint8_t>;

ExpertChoices choices_of(const Map& map, std::size_t experts) {
  return {map.data(), ExpertChoices::kMap, map.size() / experts, experts};
}

Integers counts_of(const Map& map, std::size_t experts) {
  Integers counts(experts);
  moe_histogram(choices_of(map, experts), counts.data());
  return counts;
}

// tokens_of() returns the token of each permuted row.
Integers tokens_of(const Map& map, std::size_t experts, std::size_t rows,
                   std::size_t rows_per_expert) {
  const ExpertChoices choices = choices_of(map, experts);
  std::vector<std::int32_t> positions(map.size());
  moe_positions(choices, -1, positions.data());
  Integers entries(rows);
  EXPECT_EQ(moe_permutation(choices, positions.data(), rows_per_expert, rows,
                            entries.data()),
            rows);
  for (std::int64_t& one : entries) one /= static_cast<std::int64_t>(experts);
  return entries;
}

TEST(RowsGolden, MixturesOfExperts) {
  const std::vector<Json> lines = read_golden("rows/moe.jsonl");
  EXPECT_EQ(lines.size(), 5u);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::size_t tokens = line.at("tokens"), experts = line.at("experts"),
                      topk = line.at("topk");
    Map map(tokens * experts);
    std::vector<float> all_probs(map.size());
    const std::vector<float> given = floats(line.at("probs"));
    std::vector<std::size_t> chosen;  // entries of the map
    for (const std::size_t expert : line.at("routes").at(0).at(1)) {
      const std::size_t at = chosen.size() / topk * experts + expert;
      map.at(at) = 1;
      all_probs.at(at) = given.at(chosen.size());
      chosen.push_back(at);
    }
    EXPECT_EQ(counts_of(map, experts), line.at("counts").get<Integers>());
    const Integers indices = line.at("indices");
    EXPECT_EQ(tokens_of(map, experts, indices.size(), 0), indices);
    const Matrix probs{all_probs.data(), tokens, experts, kFloat32};
    EXPECT_EQ(line.at("drops").size(), 4u);
    for (const Json& drop : line.at("drops")) {
      SCOPED_TRACE(drop);
      const std::int64_t limit = drop.at("capacity");
      const auto keep = [&](DropPolicy policy, bool pad) {
        Map kept(map.size());
        moe_apply_capacity(probs, map.data(), {limit, policy, pad},
                           kept.data());
        return kept;
      };
      Map by_probs(map.size());
      for (std::size_t c = 0; c < chosen.size(); ++c) {
        by_probs[chosen[c]] =
            drop.at("probs").get_ref<const std::string&>().at(c) == '1';
      }
      EXPECT_EQ(keep(DropPolicy::probs, false), by_probs);
      EXPECT_EQ(counts_of(keep(DropPolicy::position, false), experts),
                drop.at("position").get<Integers>());
      const Integers padded = drop.at("padded");
      if (padded.empty()) continue;

      // Megatron-LM leaves open which tokens fill an expert: its own map.
      const auto capacity = static_cast<std::size_t>(limit);
      Map full(map.size());
      for (std::size_t r = 0; r < padded.size(); ++r) {
        full[static_cast<std::size_t>(padded[r]) * experts + r / capacity] = 1;
      }
      EXPECT_EQ(tokens_of(full, experts, padded.size(), capacity), padded);
      const Map kept = keep(DropPolicy::probs, true);
      EXPECT_EQ(counts_of(kept, experts), counts_of(full, experts));
      for (std::size_t e = 0; e < kept.size(); ++e) {
        EXPECT_TRUE(kept[e] == full[e] || map[e] == 0) << e;
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
