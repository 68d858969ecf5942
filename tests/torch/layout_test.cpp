#include "master/aten/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace swamp::aten {
namespace {

bool overlap(std::vector<Extent> extents) {
  std::vector<Extent> scratch;
  return any_overlap(extents, scratch);
}

// Compares every pair.
bool overlap_reference(const std::vector<Extent>& extents) {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (extents[i].begin < extents[j].end &&
          extents[j].begin < extents[i].end) {
        return true;
      }
    }
  }
  return false;
}

TEST(Overlap, Small) {
  EXPECT_FALSE(overlap({}));
  EXPECT_FALSE(overlap({{5, 9}}));
  EXPECT_FALSE(overlap({{5, 9}, {9, 10}}));
  EXPECT_FALSE(overlap({{9, 10}, {5, 9}}));
  EXPECT_TRUE(overlap({{5, 9}, {8, 10}}));
  EXPECT_TRUE(overlap({{8, 10}, {5, 9}}));
  EXPECT_TRUE(overlap({{5, 9}, {5, 9}}));
  EXPECT_TRUE(overlap({{0, 100}, {200, 201}, {50, 51}}));
  EXPECT_FALSE(overlap({{0, 100}, {200, 201}, {150, 151}}));
}

TEST(Overlap, AsEveryPair) {
  std::mt19937_64 random(20261121);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + random() % 600;
    // One heap, or two far apart, as an allocator's for small and large blocks.
    const std::uintptr_t far = round % 2 == 0 ? 0 : std::uintptr_t{1} << 46;
    const std::uintptr_t alignment = round % 3 == 0 ? 64 : 2;
    std::vector<Extent> extents;
    std::uintptr_t at = 0x10000 + random() % 100 * alignment;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uintptr_t bytes = 2 + random() % 200;
      const std::uintptr_t base = i % 2 == 0 ? 0 : far;
      extents.push_back({base + at, base + at + bytes});
      at += (bytes + alignment - 1) / alignment * alignment;
    }
    std::shuffle(extents.begin(), extents.end(), random);
    EXPECT_FALSE(overlap(extents)) << round;
    // Move one of them a little, so that it may overlap its neighbour.
    Extent& moved = extents[random() % count];
    const std::uintptr_t by = random() % 100;
    moved = {moved.begin - by, moved.end - by};
    const bool expected = overlap_reference(extents);
    EXPECT_EQ(overlap(extents), expected) << round;
    found += expected ? 1 : 0;
  }
  EXPECT_GT(found, 20);
  EXPECT_LT(found, 280);
}

TEST(Overlap, ManyAtOneAddress) {
  EXPECT_TRUE(overlap(std::vector<Extent>(1000, {64, 66})));
  std::vector<Extent> extents;
  for (std::uintptr_t i = 0; i < 1000; ++i) {
    extents.push_back({(i * 7919 % 1000) * 64, (i * 7919 % 1000) * 64 + 64});
  }
  EXPECT_FALSE(overlap(extents));
  extents.push_back(extents[500]);
  EXPECT_TRUE(overlap(extents));
}

}  // namespace
}  // namespace swamp::aten
