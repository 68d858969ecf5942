// Mixtures of experts: values, and the errors. The golden records are in
// rows_golden_test.cpp and exact_golden_test.cpp, the same bits on every
// machine in operators_test.cpp.
#include "swamp/moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "machines.h"
#include "row_values.h"
#include "runtime/machine_impl.h"
#include "support/errors.h"

namespace swamp::test {
namespace {

using Counts = std::vector<std::int64_t>;
using Positions = std::vector<std::int32_t>;

TEST(Moe, NanIsTheHighestProbability) {
  const float values[] = {0.5f, std::nanf(""), -0.0f, 0.0f, -1.0f, 2.0f};
  const std::uint8_t map[] = {1, 1, 1, 1, 1, 1};
  struct {
    std::int64_t capacity;
    std::vector<std::uint8_t> kept;
  } const cases[] = {{1, {0, 1, 0, 0, 0, 0}},
                     {2, {0, 1, 0, 0, 0, 1}},
                     {4, {1, 1, 1, 0, 0, 1}},  // -0 equals 0
                     {5, {1, 1, 1, 1, 0, 1}}};
  for (const ScalarType type : kRowTypes) {
    Values probs(6, 1, type);
    for (std::size_t i = 0; i < 6; ++i) {
      store_value(type, probs.memory.data(), i, values[i]);
    }
    for (const auto& one : cases) {
      std::vector<std::uint8_t> kept(6);
      moe_apply_capacity(probs.matrix, map,
                         {one.capacity, DropPolicy::probs, false}, kept.data());
      EXPECT_EQ(kept, one.kept) << one.capacity;
    }
  }
}

// Choices, which tokens are counted, and where they go, by hand.
TEST(Moe, Permutation) {
  // Entry 2 is none and entry 5 is dropped.
  const std::int32_t experts[] = {1, 0, -1, 1, 0, 1};
  const std::int64_t wide[] = {1, 0, -1, 1, 0, 1};
  const ExpertChoices choices{experts, ExpertChoices::kInt32, 6, 3};
  Positions positions(6, -7);
  for (const ExpertChoices& all :
       {choices, ExpertChoices{wide, ExpertChoices::kInt64, 6, 3}}) {
    Counts counts(3, -7);
    moe_histogram(all, counts.data());
    EXPECT_EQ(counts, (Counts{2, 3, 0}));
    moe_positions(all, -1, positions.data());
    EXPECT_EQ(positions, (Positions{0, 0, -1, 1, 1, 2}));
    moe_positions(all, 2, positions.data());
    EXPECT_EQ(positions, (Positions{0, 0, -1, 1, 1, -1}));
  }
  Counts entries(5, -7);
  EXPECT_EQ(moe_permutation(choices, positions.data(), 0, 5, entries.data()),
            4u);
  EXPECT_EQ(entries, (Counts{1, 4, 0, 3, -1}));
  entries.assign(9, -7);
  EXPECT_EQ(moe_permutation(choices, positions.data(), 3, 9, entries.data()),
            9u);
  EXPECT_EQ(entries, (Counts{1, 4, -1, 0, 3, -1, -1, -1, -1}));
  const std::uint8_t map[] = {0, 1, 1, 0, 1, 1};
  const ExpertChoices of_map{map, ExpertChoices::kMap, 3, 2};
  moe_positions(of_map, -1, positions.data());
  EXPECT_EQ(positions, (Positions{-1, 0, 0, -1, 1, 1}));
  entries.assign(4, -7);
  EXPECT_EQ(moe_permutation(of_map, positions.data(), 0, 4, entries.data()),
            4u);
  EXPECT_EQ(entries, (Counts{2, 4, 1, 5}));
}

TEST(Moe, Errors) {
  const std::int32_t bad[] = {0, 2, -1, 3};
  const std::int64_t below[] = {0, -2};
  const std::int32_t positions[] = {0, 0, -1, 5};
  const ExpertChoices numbers{bad, ExpertChoices::kInt32, 4, 4};
  const std::int64_t token_of[] = {0, 4};
  Values tokens(4, 6, kFloat16, 1), permuted(2, 6, kFloat16),
      wide(2, 7, kFloat16), other(2, 6, kBFloat16);
  Counts counts(4, -7);
  Positions out(4, -7);
  std::vector<std::uint8_t> kept(24, 77);
  constexpr std::size_t kMost = ~std::size_t{0};
  float lse = 0;
  expect_refused({
      {[&] {
         moe_histogram({bad, ExpertChoices::kInt32, 4, 3}, counts.data());
       },
       "choices.data[3]: got 3, expected an expert from 0 to 3 - 1, or -1"},
      {[&] {
         moe_positions({below, ExpertChoices::kInt64, 2, 3}, 1, out.data());
       },
       "choices.data[1]: got -2, expected an expert from 0 to 3 - 1, or -1"},
      {[&] {
         moe_histogram({bad, ExpertChoices::kInt32, 4, 0}, counts.data());
       },
       "choices.experts: got 0, expected 1 to 2147483647"},
      {[&] {
         moe_histogram({bad, ExpertChoices::kMap, std::size_t{1} << 31, 4},
                       counts.data());
       },
       "choices.count: got 2147483648, expected at most 536870911"},
      {[&] {
         moe_histogram({bad, static_cast<ExpertChoices::Kind>(3), 4, 4},
                       counts.data());
       },
       "choices.kind: got 3, expected 0 (int32)"},
      {[&] {
         moe_histogram({nullptr, ExpertChoices::kInt32, 4, 4}, counts.data());
       },
       "choices.data: got null, expected the address of 4 values"},
      {[&] { moe_histogram(numbers, nullptr); },
       "counts: got null, expected the address of 4 values"},
      {[&] { moe_positions(numbers, 1, nullptr); },
       "positions: got null, expected the address of 4 values"},
      {[&] {
         moe_apply_capacity(tokens.matrix, kept.data(), {-1}, kept.data());
       },
       "options.capacity: got -1, expected at least 0"},
      {[&] { moe_permutation(numbers, positions, 0, 2, counts.data()); },
       "rows: got 2, expected at least 3"},
      {[&] { moe_permutation(numbers, positions, 2, 4, counts.data()); },
       "rows_per_expert: got 2, expected at most 1, 4 rows / 4 experts"},
      // The product with the experts is 0 modulo 2^64.
      {[&] {
         moe_permutation(numbers, positions, std::size_t{1} << 62, 4,
                         counts.data());
       },
       "rows_per_expert: got 4611686018427387904, expected at most 1"},
      {[&] { moe_permutation(numbers, positions, 0, 4, counts.data()); },
       "positions[3]: got 5, expected a position of moe_positions()"},
      {[&] { moe_permute(tokens.matrix, token_of, nullptr, permuted.matrix); },
       "token_of[1]: got 4, expected a token from 0 to 4 - 1, or -1"},
      {[&] { moe_permute(tokens.matrix, token_of, nullptr, wide.matrix); },
       "permuted.columns: got 7, expected 6 (as 'tokens' has)"},
      {[&] { moe_unpermute(other.matrix, token_of, nullptr, tokens.matrix); },
       "permuted.dtype: got bfloat16, expected float16 (as 'tokens' has)"},
      {[&] {
         moe_z_loss({nullptr, kMost, 2, kFloat32}, 1, &lse, nullptr);
       },
       "logits.rows: got 18446744073709551615, expected at most"},
      {[&] {
         moe_z_loss_backward(1, {nullptr, 2, kMost, kFloat32}, 1, &lse, nullptr,
                             {nullptr, 2, kMost, kFloat32});
       },
       "logits.columns: got 18446744073709551615, expected at most"},
      {[&] {
         moe_z_loss({nullptr, kMost, 0, kFloat32}, 1, nullptr, nullptr);
       },
       "lse: got null, expected the address of"},
      {[&] {
         moe_z_loss_backward(1, {nullptr, 0, 2, kFloat32}, 1, &lse, nullptr,
                             {nullptr, 0, 3, kFloat32});
       },
       "dx.columns: got 3, expected 2 (as 'logits' has)"},
      {[&] {
         moe_aux_loss(tokens.matrix, token_of, {1, 1, 0});
       },
       "options.choices: got 0, expected at least 1"},
  });
  EXPECT_EQ(counts, Counts(4, -7));
  EXPECT_EQ(out, Positions(4, -7));
  EXPECT_EQ(kept, std::vector<std::uint8_t>(24, 77));
  EXPECT_EQ(permuted.memory, Values(2, 6, kFloat16).memory);
}

// Enough rows that slaves make the segment tables in parts: the first bad token
// is named, and nothing is written.
TEST(Moe, BadTokensOfManyRows) {
  constexpr std::size_t kTokens = 301, kRows = 1501, kColumns = 6;
  std::vector<std::int64_t> bad(kRows, 150);
  bad[1000] = kTokens;
  bad[77] = -2;
  Values tokens(kTokens, kColumns, kFloat16, 1),
      rows(kRows, kColumns, kFloat16, 2);
  const Values tokens_before = tokens, rows_before = rows;
  std::vector<float> products(kRows, -7);
  on_machines(kRowShapes, false, [&](Machine& machine) {
    const std::vector<std::function<void()>> calls = {
        [&] {
          moe_permute(tokens.matrix, bad.data(), nullptr, rows.matrix,
                      &machine);
        },
        [&] {
          moe_unpermute(rows.matrix, bad.data(), nullptr, tokens.matrix,
                        &machine);
        },
        [&] {
          moe_dot(tokens.matrix, bad.data(), rows.matrix, products.data(),
                  &machine);
        }};
    for (const auto& call : calls) {
      expect_refused(call, {"token_of[77]: got -2"}, SWAMP_INVALID_ARGUMENT);
    }
    ASSERT_EQ(rows.memory, rows_before.memory);
    ASSERT_EQ(tokens.memory, tokens_before.memory);
    ASSERT_EQ(products, std::vector<float>(kRows, -7));
  });
}

// Too many experts for LDM, and nothing to do.
TEST(Moe, LdmAndEmpty) {
  MachineConfig config;
  config.transfer = "copy";
  config.ldm_bytes = 8 * 1024;
  Machine machine(config);
  std::vector<std::int32_t> numbers(4);
  Counts counts(3000, -7);
  expect_refused(
      [&] {
        moe_histogram({numbers.data(), ExpertChoices::kInt32, 4, 3000},
                      counts.data(), &machine);
      },
      {"choices.experts: got 3000", "a slave has 8192 (SWAMP_LDM_BYTES)"},
      SWAMP_UNSUPPORTED);
  moe_histogram({nullptr, ExpertChoices::kInt64, 0, 3}, counts.data(),
                &machine);
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 0);
  moe_positions({nullptr, ExpertChoices::kInt64, 0, 3}, 1, nullptr, &machine);
  const Matrix none{nullptr, 0, 5, kFloat16};
  moe_permute(none, nullptr, nullptr, none, &machine);
  moe_unpermute(none, nullptr, nullptr, none, &machine);
  moe_dot(none, nullptr, none, nullptr, &machine);
  Values zeros(2, 5, kFloat32, 1);
  moe_unpermute({nullptr, 0, 5, kFloat32}, nullptr, nullptr, zeros.matrix,
                &machine);
  EXPECT_EQ(zeros.memory, Values(2, 5, kFloat32).memory);

  // Losses without tokens or without experts.
  struct {
    std::size_t tokens, experts;
    double z;
  } const losses[] = {{0, 3, std::nan("")},
                      {0, ~std::size_t{0}, std::nan("")},
                      {0, 0, std::nan("")},
                      {3, 0, std::numeric_limits<double>::infinity()}};
  const std::int64_t no_counts[3] = {};
  AuxLossOptions options;
  options.tokens = 5;
  for (const auto& one : losses) {
    const Matrix logits{nullptr, one.tokens, one.experts, kFloat32};
    std::vector<float> lse(3, 7);
    const double z = moe_z_loss(logits, 0.5, lse.data(), nullptr, &machine);
    EXPECT_TRUE(std::isnan(one.z) ? std::isnan(z) : z == one.z);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(lse[i], i < one.tokens ? -HUGE_VALF : 7.0f);
    }
    moe_z_loss_backward(1, logits, 0.5, lse.data(), nullptr, logits, &machine);
    EXPECT_EQ(moe_aux_loss(logits, no_counts, options, &machine), 0);
    moe_aux_loss_backward(1, no_counts, logits, options, &machine);
  }
}

}  // namespace
}  // namespace swamp::test
