// Where memory was touched first it stays: every pass over the same tensors
// gives each slave the same elements, whatever the pass reads and writes, and
// each core group a part of its own.
#include <gtest/gtest.h>

#include "fake_list.h"

namespace swamp::test {
namespace {

std::vector<runtime::SlaveRange> ranges_of(const FakeList& list, int slaves) {
  std::vector<runtime::SlaveRange> ranges(static_cast<std::size_t>(slaves));
  const int made =
      master::partition(list, list.traffic_bytes(), slaves, ranges.data());
  ranges.resize(static_cast<std::size_t>(made));
  return ranges;
}

bool same(const runtime::SlaveRange& a, const runtime::SlaveRange& b) {
  return a.begin_segment == b.begin_segment &&
         a.begin_element == b.begin_element && a.end_segment == b.end_segment &&
         a.end_element == b.end_element;
}

// Passes of a step differ in the bytes of an element; the lists are the same.
TEST(PartitionStable, EveryPassGivesASlaveTheSameElements) {
  Random random(77);
  for (int round = 0; round < 200; ++round) {
    std::vector<FakeTensor> tensors = random_tensors(random);
    for (const int slaves : {2, 3, 8, 64, 384}) {
      std::vector<runtime::SlaveRange> first;
      for (int type = 0; type < FakeList::kTypes; ++type) {
        for (FakeTensor& tensor : tensors) tensor.type = type;
        const FakeList list(tensors);
        const auto ranges = ranges_of(list, slaves);
        if (type == 0) first = ranges;
        ASSERT_EQ(ranges.size(), first.size()) << list.text();
        for (std::size_t i = 0; i < ranges.size(); ++i) {
          ASSERT_TRUE(same(ranges[i], first[i]))
              << list.text() << " slave " << i << " of " << slaves;
        }
      }
    }
  }
}

// Groups are slaves that follow each other: with more groups, the border
// between two nodes moves only where the number of nodes does.
TEST(PartitionStable, ACoreGroupHasOneStretchOfTheList) {
  const FakeList list(std::vector<FakeTensor>(40, {1u << 18, 2}));
  for (const int groups : {2, 4}) {
    for (const int per_group : {1, 2, 16}) {
      const auto nodes = ranges_of(list, groups);
      const auto slaves = ranges_of(list, groups * per_group);
      ASSERT_EQ(slaves.size(), static_cast<std::size_t>(groups * per_group));
      for (int g = 0; g < groups; ++g) {
        const auto& node = nodes[static_cast<std::size_t>(g)];
        const auto& first = slaves[static_cast<std::size_t>(g * per_group)];
        const auto& last =
            slaves[static_cast<std::size_t>((g + 1) * per_group - 1)];
        EXPECT_EQ(first.begin_segment, node.begin_segment);
        EXPECT_EQ(first.begin_element, node.begin_element);
        EXPECT_EQ(last.end_segment, node.end_segment);
        EXPECT_EQ(last.end_element, node.end_element);
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
