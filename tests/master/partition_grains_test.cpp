// Step one of the partition: list -> grains.
#include <gtest/gtest.h>

#include <vector>

#include "fake_list.h"

namespace swamp::test {
namespace {

using master::GrainRun;
using master::kBlockElements;
using master::kMaxGrains;

constexpr std::uint64_t kSeed = 2024;

void expect_grains(const FakeList& list) {
  const std::size_t blocks = master::blocks_per_grain(list);
  ASSERT_GE(blocks, 1u);
  std::size_t segment = 0;
  std::size_t grains = 0;
  for (const GrainRun& run : grain_runs(list)) {
    ASSERT_EQ(run.begin_tensor, segment);  // every tensor once and in order
    ASSERT_GT(run.end_tensor, run.begin_tensor);
    ASSERT_LE(run.end_tensor, list.size());
    segment = run.end_tensor;
    grains += run.grains;

    std::uint64_t bytes = 0;
    std::size_t elements = 0;
    for (std::size_t i = run.begin_tensor; i < run.end_tensor; ++i) {
      bytes += list.bytes_of(i, list.count(i));
      elements += list.count(i);
    }
    ASSERT_EQ(run.bytes, bytes);
    if (list.count(run.begin_tensor) >= kBlockElements) {
      // Whole blocks of one tensor.
      ASSERT_EQ(run.end_tensor, run.begin_tensor + 1);
      ASSERT_EQ(run.grain_elements, blocks * kBlockElements);
      ASSERT_GE(run.grains * run.grain_elements, elements);
      ASSERT_LT((run.grains - 1) * run.grain_elements, elements);
    } else {
      // A run of small tensors, as long as it may be.
      ASSERT_EQ(run.grains, 1u);
      ASSERT_LE(elements, kBlockElements);
      for (std::size_t i = run.begin_tensor; i < run.end_tensor; ++i) {
        ASSERT_LT(list.count(i), kBlockElements);
      }
      if (run.end_tensor < list.size() &&
          list.count(run.end_tensor) < kBlockElements) {
        ASSERT_GT(elements + list.count(run.end_tensor), kBlockElements);
      }
    }
  }
  ASSERT_EQ(segment, list.size());
  ASSERT_LE(grains, kMaxGrains + list.size());
}

TEST(PartitionGrains, RandomLists) {
  Random random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    const FakeList list(random_tensors(random));
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " +
                 std::to_string(round) + ": " + list.text());
    expect_grains(list);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PartitionGrains, BlocksPerGrainGrowsOnlyAboveTheLimit) {
  const auto blocks_of = [](std::vector<FakeTensor> tensors) {
    return master::blocks_per_grain(FakeList(tensors));
  };
  EXPECT_EQ(blocks_of({}), 1u);
  EXPECT_EQ(blocks_of({{kMaxGrains * kBlockElements, 2}}), 1u);
  EXPECT_EQ(blocks_of({{kMaxGrains * kBlockElements + 1, 2}}), 2u);
  EXPECT_EQ(blocks_of({{2 * kMaxGrains * kBlockElements, 2}}), 2u);
  EXPECT_EQ(
      blocks_of({{2 * kMaxGrains * kBlockElements, 2}, {kBlockElements, 0}}),
      3u);
  // Small tensors are no blocks.
  EXPECT_EQ(blocks_of(std::vector<FakeTensor>(40000, {kBlockElements - 1, 0})),
            1u);
  // The dtype does not matter.
  EXPECT_EQ(blocks_of({{kMaxGrains * kBlockElements + 1, 0}}),
            blocks_of({{kMaxGrains * kBlockElements + 1, 3}}));
}

TEST(PartitionGrains, HugeCounts) {
  const std::size_t kHuge = std::size_t{1} << 40;
  for (const std::vector<FakeTensor>& tensors :
       {std::vector<FakeTensor>{{kHuge, 3}},
        std::vector<FakeTensor>(64, {kHuge - 1, 3}),
        std::vector<FakeTensor>{{1, 0}, {kHuge, 1}, {0, 2}, {kHuge + 1, 2}}}) {
    const FakeList list(tensors);
    SCOPED_TRACE(list.text());
    expect_grains(list);
  }
}

TEST(PartitionGrains, KnownLists) {
  const FakeList list({{8192, 2},
                       {8193, 2},
                       {8000, 0},
                       {192, 1},
                       {0, 2},
                       {1, 2},
                       {0, 3},
                       {8192, 3}});
  const std::vector<GrainRun> runs = grain_runs(list);
  ASSERT_EQ(runs.size(), 5u);
  EXPECT_EQ(runs[0].grains, 1u);
  EXPECT_EQ(runs[1].grains, 2u);
  EXPECT_EQ(runs[2].begin_tensor, 2u);  // 8000 + 192 + 0
  EXPECT_EQ(runs[2].end_tensor, 5u);
  EXPECT_EQ(runs[3].end_tensor, 7u);  // 1 + 0
  EXPECT_EQ(runs[4].end_tensor, 8u);
}

}  // namespace
}  // namespace swamp::test
