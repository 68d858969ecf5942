// The kernels that count experts: the results of the reference on every ISA,
// with grains and flags.
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

}  // namespace
}  // namespace swamp::test
