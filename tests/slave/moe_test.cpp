// The kernels of mixtures of experts: the results of the reference on every
// ISA.
#include <gtest/gtest.h>

#include "row_cases.h"

namespace swamp::test {
namespace {

// run_experts() runs a kernel of counts or positions.
Result run_experts(const KernelTable& table, int id, const slave::MoeArgs& args,
                   std::vector<void*> operands, std::size_t count,
                   std::size_t first, std::size_t grain_units,
                   std::vector<std::uint32_t>& partial) {
  Tile tile;
  tile.operands = operands.data();
  tile.count = count;
  tile.first = first;
  tile.grain_units = grain_units;
  tile.partial = partial.data();
  Result result;
  (*table.rows[id].function)(&args, tile, result);
  return result;
}

// Entries of `count` units: numbers, some of which are no expert, or a map.
std::vector<std::uint8_t> make_entries(int bytes, std::size_t count,
                                       std::size_t experts, Random& random) {
  std::vector<std::uint8_t> entries(count * (bytes == 1 ? experts : 8) + 8);
  for (std::size_t i = 0; bytes == 1 && i < count * experts; ++i) {
    entries[i] = static_cast<std::uint8_t>(random.below(4) == 0 ? i | 1 : 0);
  }
  for (std::size_t i = 0; bytes != 1 && i < count; ++i) {
    std::int64_t expert =
        static_cast<std::int64_t>(random.below(experts + 1)) - 1;
    if (random.below(50) == 0) expert = static_cast<std::int64_t>(experts);
    if (random.below(50) == 0) expert = -2;
    std::memcpy(&entries[i * static_cast<std::size_t>(bytes)], &expert,
                static_cast<std::size_t>(bytes));
  }
  return entries;
}

TEST(Moe, CountsAndPositionsAreThoseOfTheReference) {
  struct {
    int bytes, count, position;
  } const kinds[] = {
      {4, kernel_of(F::moe_count, {slave::kInt32}),
       kernel_of(F::moe_position, {slave::kInt32})},
      {8, kernel_of(F::moe_count, {slave::kInt64}),
       kernel_of(F::moe_position, {slave::kInt64})},
      {1, kernel_of(F::moe_count_map, {}), kernel_of(F::moe_position_map, {})}};
  Random random(43);
  for (const auto& kind : kinds) {
    for (const std::uint32_t experts : {1u, 2u, 7u, 64u, 129u}) {
      for (const std::size_t count : {1u, 5u, 100u}) {
        for (const std::uint32_t capacity : {0u, 3u, 0x7fffffffu}) {
          SCOPED_TRACE(testing::Message()
                       << kind.bytes << " experts " << experts << " count "
                       << count << " capacity " << capacity);
          const slave::MoeArgs args{experts, capacity};
          std::vector<std::uint8_t> entries =
              make_entries(kind.bytes, count, experts, random);
          std::vector<std::uint32_t> base(experts);
          for (std::uint32_t& one : base) {
            one = static_cast<std::uint32_t>(random.below(5));
          }
          const std::size_t positions =
              count * (kind.bytes == 1 ? experts : 1) + 1;
          std::vector<std::uint32_t> expected_counts, expected_grains;
          std::vector<std::int32_t> expected;
          Result expected_result;
          for (const KernelTable& table : row_tables()) {
            SCOPED_TRACE(table.isa);
            const bool first = &table == &row_tables()[0];
            // All in one grain, which begins with a count; and in grains of 6
            // units, beginning with the third unit of the second.
            std::vector<std::uint32_t> counts(args.counts(), 0);
            counts[0] = 9;
            std::vector<std::uint32_t> grains(args.counts() * (count / 6 + 2));
            const Result result =
                run_experts(table, kind.count, args, {entries.data()}, count,
                            11, 0, counts);
            run_experts(table, kind.count, args, {entries.data()}, count, 6, 6,
                        grains);
            std::vector<std::uint32_t> running(args.counts(), 0);
            std::vector<std::int32_t> actual(positions, 77);
            run_experts(table, kind.position, args,
                        {entries.data(), base.data(), actual.data()}, count, 0,
                        0, running);
            EXPECT_EQ(actual.back(), 77);
            if (first) {
              expected_counts = counts;
              expected_grains = grains;
              expected = actual;
              expected_result = result;
            }
            ASSERT_EQ(counts, expected_counts);
            ASSERT_EQ(grains, expected_grains);
            ASSERT_EQ(actual, expected);
            ASSERT_EQ(result.flagged_elements,
                      expected_result.flagged_elements);
            ASSERT_EQ(result.first_index, expected_result.first_index);
            counts[0] -= 9;
            ASSERT_EQ(running, counts);
          }
        }
      }
    }
  }
}

TEST(Moe, SumsHaveTheBitsOfTheReference) {
  struct {
    ScalarType in, out;
  } const cases[] = {{kFloat16, kFloat16},
                     {kBFloat16, kBFloat16},
                     {kFloat32, kFloat32},
                     {kFloat16, kFloat32},
                     {kBFloat16, kFloat32}};
  Random random(44);
  const slave::MoeSumArgs args;
  slave::MoeFactors factors{{0.3f, -1.7f, 1e-3f}, 0};
  for (const auto& one : cases) {
    for (const std::size_t columns : kRowLengths) {
      Data x[] = {filled_rows(one.in, 1, columns, random, ordinary),
                  filled_rows(one.in, 1, columns, random, with_nan),
                  filled_rows(one.in, 1, columns, random, wide)};
      const Data before = filled_rows(kFloat32, 1, columns, random, ordinary);
      for (int options = 0; options < 16; ++options) {
        const int count = options % 4;
        const bool with_sum = options & 4;
        const bool with_factors = options & 8;
        if (count == 0 && with_sum) continue;
        Data expected(one.out, columns);
        for (const KernelTable& table : row_tables()) {
          for (const bool hints : {false, true}) {
            Data sum = before;
            Data separate(one.out, columns);
            // A float32 output may be the sum.
            Data& y = with_sum && hints && one.out == kFloat32 ? sum : separate;
            run_rows(table, kernel_of(F::moe_sum, {one.in, one.out}), &args,
                     {count > 0 ? x[0].data() : nullptr,
                      count > 1 ? x[1].data() : nullptr,
                      count > 2 ? x[2].data() : nullptr,
                      with_sum ? sum.data() : nullptr,
                      with_factors ? &factors : nullptr, y.data()},
                     columns, 0, nullptr, hints);
            if (&table == &row_tables()[0]) expected = y;
            ASSERT_TRUE(same_bits(y, expected))
                << table.isa << " columns " << columns << " options "
                << options;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
