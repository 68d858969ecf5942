// The partition: list -> grains -> slaves.
#include "master/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/random.h"

namespace swamp::test {
namespace {

// ---- Random lists of counts.

struct FakeTensor {
  std::size_t count;
  int type;  // index of its traffic
};

// FakeList is a List of partition.h.
class FakeList {
 public:
  static constexpr int kTypes = 4;

  explicit FakeList(const std::vector<FakeTensor>& tensors,
                    const master::GrainRule& rule = {});

  std::size_t size() const { return tensors_.size(); }
  std::size_t count(std::size_t i) const { return tensors_[i].count; }
  std::uint64_t unit_traffic(std::size_t i) const;
  const master::GrainRule& grain_rule() const { return rule_; }
  const master::SegmentChunk* chunks() const {
    return chunks_.empty() ? nullptr : chunks_.data();
  }

  // with_chunks() is the same list, whose segments have chunks.
  FakeList with_chunks() const;
  std::uint64_t traffic_bytes() const { return traffic_bytes_; }
  std::uint64_t bytes_of(std::size_t i, std::size_t elements) const {
    return elements * unit_traffic(i);
  }
  std::string text() const;

 private:
  std::vector<FakeTensor> tensors_;
  master::GrainRule rule_;
  std::vector<master::SegmentChunk> chunks_;
  std::uint64_t traffic_bytes_ = 0;
};

FakeList::FakeList(const std::vector<FakeTensor>& tensors,
                   const master::GrainRule& rule)
    : tensors_(tensors), rule_(rule) {
  for (std::size_t i = 0; i < size(); ++i) {
    traffic_bytes_ += bytes_of(i, count(i));
  }
}

FakeList FakeList::with_chunks() const {
  FakeList list = *this;
  list.chunks_.resize(size() / master::SegmentChunk::kSegments + 1);
  for (std::size_t i = 0; i < size(); ++i) {
    auto& chunk = list.chunks_[i / master::SegmentChunk::kSegments];
    chunk.traffic_bytes += bytes_of(i, count(i));
    chunk.units += count(i);
  }
  return list;
}

std::uint64_t FakeList::unit_traffic(std::size_t i) const {
  constexpr std::uint64_t kBytes[kTypes] = {8, 8, 12, 20};
  return kBytes[tensors_[i].type];
}

std::string FakeList::text() const {
  std::string text;
  for (std::size_t i = 0; i < size() && i < 40; ++i) {
    text +=
        std::to_string(count(i)) + "x" + std::to_string(unit_traffic(i)) + " ";
  }
  return text + "(" + std::to_string(size()) + " tensors)";
}

// random_tensors() returns random lists of all kinds: small and large tensors,
// empty ones, counts at the edges of blocks, a single tensor, none at all.
std::vector<FakeTensor> random_tensors(Random& random) {
  constexpr std::size_t kBlock = master::kBlockElements;
  const std::size_t edges[] = {0,          1,           kBlock - 1,
                               kBlock,     kBlock + 1,  2 * kBlock - 1,
                               2 * kBlock, 100 * kBlock};
  const std::uint64_t kind = random.below(6);
  const std::size_t length =
      kind == 0 ? random.below(3) : 1 + random.below(kind == 1 ? 1000 : 60);
  std::vector<FakeTensor> tensors;
  for (std::size_t i = 0; i < length; ++i) {
    std::size_t count = 0;
    switch (random.below(kind == 1 ? 2 : 5)) {
      case 0:
        count = random.below(300);
        break;
      case 1:
        count = random.below(kBlock);
        break;
      case 2:
        count = edges[random.below(sizeof edges / sizeof edges[0])];
        break;
      case 3:
        count = random.below(50 * kBlock);
        break;
      default:
        count = kind == 2 ? random.below(5000 * kBlock) : 0;
    }
    tensors.push_back({count, static_cast<int>(random.below(4))});
  }
  return tensors;
}

// for_each_list() calls body(list, round, random) for random lists, until a
// check fails.
template <class Body>
void for_each_list(std::uint64_t seed, int rounds,
                   const master::GrainRule& rule, Body body) {
  Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    const FakeList list(random_tensors(random), rule);
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " +
                 std::to_string(round) + ": " + list.text());
    body(list, round, random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// grain_runs() returns the grains of a list.
std::vector<master::GrainRun> grain_runs(const FakeList& list) {
  std::vector<master::GrainRun> runs;
  master::for_each_grain_run(
      list, [&](const master::GrainRun& run) { runs.push_back(run); });
  return runs;
}

using master::GrainRun;
using master::kBlockElements;
using master::kMaxGrains;
using runtime::SlaveRange;

constexpr std::uint64_t kGrainSeed = 2024;
constexpr std::uint64_t kSeed = 4049;
constexpr int kSlaves[] = {1, 2, 3, 64, 384, 65536};

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
      ASSERT_EQ(run.grain_units, blocks * kBlockElements);
      ASSERT_GE(run.grains * run.grain_units, elements);
      ASSERT_LT((run.grains - 1) * run.grain_units, elements);
    } else {
      // A run of small tensors, as long as possible.
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

// Chunks change no grain.
TEST(PartitionGrains, RandomLists) {
  for_each_list(kGrainSeed, 2000, {}, [](const FakeList& list, int, Random&) {
    expect_grains(list);
    const FakeList chunked = list.with_chunks();
    expect_grains(chunked);
    ASSERT_EQ(grain_runs(chunked).size(), grain_runs(list).size());
  });
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
  // Small tensors are not counted as blocks.
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

TEST(PartitionGrains, SmallTensorsThatDoNotJoin) {
  const FakeList list({{3, 0}, {0, 1}, {1, 2}, {9, 3}, {2, 0}, {2, 0}},
                      {4, ~std::size_t{0}, false});
  const std::vector<GrainRun> runs = grain_runs(list);
  ASSERT_EQ(runs.size(), list.size());
  std::vector<std::size_t> first;
  const master::Grains grains = master::number_grains(
      list, [&](std::size_t, std::size_t grain) { first.push_back(grain); });
  EXPECT_EQ(grains.count, 7u);
  EXPECT_EQ(grains.units, 4u);
  EXPECT_EQ(first, (std::vector<std::size_t>{0, 1, 1, 2, 5, 6}));
}

std::uint64_t biggest_grain_bytes(const FakeList& list) {
  std::uint64_t biggest = 0;
  for (const GrainRun& run : grain_runs(list)) {
    biggest = std::max(biggest,
                       run.grains == 1
                           ? run.bytes
                           : list.bytes_of(run.begin_tensor, run.grain_units));
  }
  return biggest;
}

// is_grain_edge() returns whether a place in the list lies between two grains.
bool is_grain_edge(const std::vector<GrainRun>& runs, std::size_t segment,
                   std::size_t element) {
  for (const GrainRun& run : runs) {
    if (run.begin_tensor == segment) {
      return element % run.grain_units == 0 &&
             element / run.grain_units < run.grains;
    }
  }
  return false;
}

std::uint64_t range_bytes(const FakeList& list, const SlaveRange& range) {
  std::uint64_t bytes = 0;
  for (std::size_t i = range.begin_segment; i < range.end_segment; ++i) {
    bytes += list.bytes_of(i, list.count(i));
  }
  if (range.end_unit != 0) {
    bytes += list.bytes_of(range.end_segment, range.end_unit);
  }
  if (range.begin_unit != 0) {
    bytes -= list.bytes_of(range.begin_segment, range.begin_unit);
  }
  return bytes;
}

using master::Shares;

template <Shares kShares = Shares::of_rest>
std::vector<SlaveRange> ranges_of(const FakeList& list, int slaves) {
  // One more, which must stay as it is.
  std::vector<SlaveRange> ranges(static_cast<std::size_t>(slaves) + 1,
                                 SlaveRange{9, 9, 9, 9});
  const int made = master::partition(list, list.traffic_bytes(), slaves,
                                     ranges.data(), kShares);
  EXPECT_GE(made, 1);
  EXPECT_LE(made, slaves);
  EXPECT_EQ(ranges.back().end_unit, 9u);
  ranges.resize(static_cast<std::size_t>(std::clamp(made, 1, slaves)));
  return ranges;
}

template <Shares kShares>
void expect_shares(const FakeList& list, int slaves) {
  SCOPED_TRACE(std::to_string(slaves) + " slaves");
  const std::vector<GrainRun> runs = grain_runs(list);
  const std::vector<SlaveRange> ranges = ranges_of<kShares>(list, slaves);
  const std::uint64_t mean =
      list.traffic_bytes() / static_cast<std::uint64_t>(slaves);
  const std::uint64_t limit =
      (list.chunks() == nullptr ? mean : mean + mean / 16) + 1 +
      (kShares == Shares::of_rest ? 2 : 1) * biggest_grain_bytes(list);

  // Each range begins where the last one ended: every element exactly once and
  // in order.
  std::size_t segment = 0;
  std::size_t element = 0;
  std::uint64_t bytes = 0;
  for (const SlaveRange& range : ranges) {
    ASSERT_EQ(range.begin_segment, segment);
    ASSERT_EQ(range.begin_unit, element);
    segment = range.end_segment;
    element = range.end_unit;
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
                          range.end_unit > range.begin_unit);
    ASSERT_TRUE(forward || list.size() == 0);
    ASSERT_LE(range_bytes(list, range), limit);
    bytes += range_bytes(list, range);
  }
  ASSERT_EQ(segment, list.size());
  ASSERT_EQ(element, 0u);
  ASSERT_EQ(bytes, list.traffic_bytes());
}

void expect_partition(const FakeList& list, int slaves) {
  expect_shares<Shares::of_all>(list, slaves);
  expect_shares<Shares::of_rest>(list, slaves);
}

TEST(Partition, RandomLists) {
  const auto check = [](const FakeList& list, int round, Random& random) {
    for (const int slaves : kSlaves) {
      // Many slaves cost the test more than the partition.
      if (slaves > 1000 && round % 30 != 0) continue;
      expect_partition(list, slaves);
    }
    const int some = 1 + static_cast<int>(random.below(100));
    expect_partition(list, some);
    expect_partition(list.with_chunks(), some);
  };
  for_each_list(kSeed, 300, {}, check);
}

// The rule of launches that have no results by grain: ranges end between any
// two small tensors, and only some chunks are visited to find them.
TEST(Partition, Chunks) {
  const master::GrainRule rule{kBlockElements, ~std::size_t{0}, false};
  for_each_list(kSeed, 300, rule, [](const FakeList& list, int, Random&) {
    const FakeList chunked = list.with_chunks();
    for (const int slaves : {1, 2, 3, 8, 64, 384}) {
      expect_partition(chunked, slaves);
    }
  });
  // As many small tensors for each slave, within an eighth.
  const FakeList small =
      FakeList(std::vector<FakeTensor>(10000, {16, 0}), rule).with_chunks();
  for (const int slaves : {2, 8, 64, 192}) {
    const std::vector<SlaveRange> ranges = ranges_of(small, slaves);
    ASSERT_EQ(ranges.size(), static_cast<std::size_t>(slaves));
    for (const SlaveRange& range : ranges) {
      EXPECT_LE(8 * range_bytes(small, range) * ranges.size(),
                9 * small.traffic_bytes());
    }
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
  // No slave is idle if there are enough grains.
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

// Grains of four sizes, as those of the gradients of causal attention: 12 heads
// of 1024 queries, 64 keys each. What one range has too much, the ranges after
// it have less.
TEST(Partition, UnevenGrains) {
  std::vector<FakeTensor> tensors;
  for (int head = 0; head < 12; ++head) {
    for (std::size_t keys = 0; keys < 1024; keys += 64) {
      tensors.push_back({1024 - keys, 0});
    }
  }
  const FakeList list(tensors, {256, ~std::size_t{0}, false});
  const auto most = [&](const std::vector<SlaveRange>& ranges) {
    std::uint64_t bytes = 0;
    for (const SlaveRange& range : ranges) {
      bytes = std::max(bytes, range_bytes(list, range));
    }
    return bytes / list.bytes_of(0, 64);
  };
  // In 64 queries; the mean is 25.5 and 8.5.
  EXPECT_EQ(most(ranges_of(list, 64)), 27u);
  EXPECT_EQ(most(ranges_of(list, 192)), 11u);
  EXPECT_EQ(most(ranges_of<Shares::of_all>(list, 64)), 29u);
  EXPECT_EQ(most(ranges_of<Shares::of_all>(list, 192)), 12u);
}

TEST(Partition, EmptyLists) {
  for (const int slaves : kSlaves) {
    const std::vector<SlaveRange> none = ranges_of(FakeList({}), slaves);
    ASSERT_EQ(none.size(), 1u);
    EXPECT_EQ(none[0].end_segment, 0u);
    EXPECT_EQ(none[0].end_unit, 0u);
    expect_partition(FakeList({{0, 0}, {0, 3}, {0, 1}}), slaves);
  }
}

bool same(const runtime::SlaveRange& a, const runtime::SlaveRange& b) {
  return a.begin_segment == b.begin_segment && a.begin_unit == b.begin_unit &&
         a.end_segment == b.end_segment && a.end_unit == b.end_unit;
}

// A page of memory stays on the NUMA node that touched it first. So every pass
// over the same tensors gives each slave the same elements, whatever the pass
// reads and writes, and each core group its own part.
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
        const auto ranges = ranges_of<Shares::of_all>(list, slaves);
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

// Core groups are consecutive slaves: the border between two nodes depends only
// on the number of nodes.
TEST(PartitionStable, ACoreGroupHasOneStretchOfTheList) {
  const FakeList list(std::vector<FakeTensor>(40, {1u << 18, 2}));
  for (const int groups : {2, 4}) {
    for (const int per_group : {1, 2, 16}) {
      const auto nodes = ranges_of<Shares::of_all>(list, groups);
      const auto slaves = ranges_of<Shares::of_all>(list, groups * per_group);
      ASSERT_EQ(slaves.size(), static_cast<std::size_t>(groups * per_group));
      for (int g = 0; g < groups; ++g) {
        const auto& node = nodes[static_cast<std::size_t>(g)];
        const auto& first = slaves[static_cast<std::size_t>(g * per_group)];
        const auto& last =
            slaves[static_cast<std::size_t>((g + 1) * per_group - 1)];
        EXPECT_EQ(first.begin_segment, node.begin_segment);
        EXPECT_EQ(first.begin_unit, node.begin_unit);
        EXPECT_EQ(last.end_segment, node.end_segment);
        EXPECT_EQ(last.end_unit, node.end_unit);
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
