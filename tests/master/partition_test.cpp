// Step two of the partition: grains -> slaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fake_list.h"

namespace swamp::test {
namespace {

using master::GrainRun;
using runtime::SlaveRange;

constexpr std::uint64_t kSeed = 4049;
constexpr int kSlaves[] = {1, 2, 3, 64, 384, 65536};

std::uint64_t biggest_grain_bytes(const FakeList& list) {
  std::uint64_t biggest = 0;
  for (const GrainRun& run : grain_runs(list)) {
    biggest = std::max(
        biggest, run.grains == 1
                     ? run.bytes
                     : list.bytes_of(run.begin_tensor, run.grain_elements));
  }
  return biggest;
}

// is_grain_edge() says whether a place in the list lies between two grains.
bool is_grain_edge(const std::vector<GrainRun>& runs, std::size_t segment,
                   std::size_t element) {
  for (const GrainRun& run : runs) {
    if (run.begin_tensor == segment) {
      return element % run.grain_elements == 0 &&
             element / run.grain_elements < run.grains;
    }
  }
  return false;
}

std::uint64_t range_bytes(const FakeList& list, const SlaveRange& range) {
  std::uint64_t bytes = 0;
  for (std::size_t i = range.begin_segment; i < range.end_segment; ++i) {
    bytes += list.bytes_of(i, list.count(i));
  }
  if (range.end_element != 0) {
    bytes += list.bytes_of(range.end_segment, range.end_element);
  }
  if (range.begin_element != 0) {
    bytes -= list.bytes_of(range.begin_segment, range.begin_element);
  }
  return bytes;
}

std::vector<SlaveRange> ranges_of(const FakeList& list, int slaves) {
  // One more, which must stay as it is.
  std::vector<SlaveRange> ranges(static_cast<std::size_t>(slaves) + 1,
                                 SlaveRange{9, 9, 9, 9});
  const int made =
      master::partition(list, list.traffic_bytes(), slaves, ranges.data());
  EXPECT_GE(made, 1);
  EXPECT_LE(made, slaves);
  EXPECT_EQ(ranges.back().end_element, 9u);
  ranges.resize(static_cast<std::size_t>(std::clamp(made, 1, slaves)));
  return ranges;
}

void expect_partition(const FakeList& list, int slaves) {
  SCOPED_TRACE(std::to_string(slaves) + " slaves");
  const std::vector<GrainRun> runs = grain_runs(list);
  const std::vector<SlaveRange> ranges = ranges_of(list, slaves);
  const std::uint64_t limit =
      list.traffic_bytes() / static_cast<std::uint64_t>(slaves) + 1 +
      biggest_grain_bytes(list);

  // Each range begins where the last one ended: every element exactly once and
  // in order.
  std::size_t segment = 0;
  std::size_t element = 0;
  std::uint64_t bytes = 0;
  for (const SlaveRange& range : ranges) {
    ASSERT_EQ(range.begin_segment, segment);
    ASSERT_EQ(range.begin_element, element);
    segment = range.end_segment;
    element = range.end_element;
    ASSERT_LE(segment, list.size());
    if (segment == list.size()) {
      ASSERT_EQ(element, 0u);
    } else {
      ASSERT_LT(element, std::max<std::size_t>(1, list.count(segment)));
      ASSERT_TRUE(is_grain_edge(runs, segment, element))
          << "segment " << segment << " element " << element;
    }
    const bool forward = range.end_segment > range.begin_segment ||
                         (range.end_segment == range.begin_segment &&
                          range.end_element > range.begin_element);
    ASSERT_TRUE(forward || list.size() == 0);
    ASSERT_LE(range_bytes(list, range), limit);
    bytes += range_bytes(list, range);
  }
  ASSERT_EQ(segment, list.size());
  ASSERT_EQ(element, 0u);
  ASSERT_EQ(bytes, list.traffic_bytes());
}

TEST(Partition, RandomLists) {
  Random random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const FakeList list(random_tensors(random));
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " +
                 std::to_string(round) + ": " + list.text());
    for (const int slaves : kSlaves) {
      // Many slaves cost the test more than the partition.
      if (slaves > 1000 && round % 30 != 0) continue;
      expect_partition(list, slaves);
      if (testing::Test::HasFatalFailure()) return;
    }
    expect_partition(list, 1 + static_cast<int>(random.below(100)));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Partition, HugeCountsDoNotOverflow) {
  const std::size_t kHuge = std::size_t{1} << 40;
  const FakeList one({{kHuge, 3}});
  const FakeList many(std::vector<FakeTensor>(100, {kHuge - 3, 3}));
  for (const int slaves : kSlaves) {
    expect_partition(one, slaves);
    expect_partition(many, slaves);
  }
  // Nobody idles when there are grains for all.
  EXPECT_EQ(ranges_of(one, 384).size(), 384u);
  EXPECT_EQ(ranges_of(many, 384).size(), 384u);
}

TEST(Partition, EvenListsAreSplitEvenly) {
  const FakeList list({{64 * master::kBlockElements, 2}});
  const std::vector<SlaveRange> ranges = ranges_of(list, 64);
  ASSERT_EQ(ranges.size(), 64u);
  for (const SlaveRange& range : ranges) {
    EXPECT_EQ(range_bytes(list, range),
              list.bytes_of(0, master::kBlockElements));
  }
}

TEST(Partition, EmptyLists) {
  for (const int slaves : kSlaves) {
    const std::vector<SlaveRange> none = ranges_of(FakeList({}), slaves);
    ASSERT_EQ(none.size(), 1u);
    EXPECT_EQ(none[0].end_segment, 0u);
    EXPECT_EQ(none[0].end_element, 0u);
    expect_partition(FakeList({{0, 0}, {0, 3}, {0, 1}}), slaves);
  }
}

}  // namespace
}  // namespace swamp::test
