// DMA with reply counters, and what transfer mode `check` finds.
#include "runtime/dma.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/ldm_layout.h"
#include "support/random.h"
#include "tests/runtime/test_kernels.h"

namespace swamp::runtime {
namespace {

// DmaTest has 4 KiB of LDM and one array of 64 words that may be written and
// one that may only be read.
class DmaTest : public ::testing::Test {
 protected:
  DmaTest()
      : list_(make_operation()),
        ldm_(memory_, sizeof memory_),
        window_((list_.add(64, {in_, out_}), list_.table())) {
    set_report_callback(
        [](void* user, const char* text) {
          static_cast<DmaTest*>(user)->reports_.emplace_back(text);
        },
        this);
    for (std::uint32_t i = 0; i < 64; ++i) in_[i] = out_[i] = 100 + i;
    tile_ = static_cast<std::uint32_t*>(ldm_.allocate(256));
    reply_ = static_cast<Reply*>(ldm_.allocate(sizeof(Reply)));
    *reply_ = 0;
  }
  ~DmaTest() override { set_report_callback(nullptr, nullptr); }

  static Operation make_operation() {
    static const test::Args args{0};
    constexpr KernelInfo kCopy =
        test::kernel_info<test::Args>("copy", 0, {in(kFloat32), out(kFloat32)});
    return Operation(kCopy, &args);
  }

  // expect() checks that there is exactly one report so far, of this category.
  void expect(const std::string& category) {
    ASSERT_EQ(reports_.size(), 1u);
    EXPECT_NE(reports_[0].find(": " + category + ": cg 2 slave 12: "),
              std::string::npos)
        << reports_[0];
    EXPECT_NE(reports_[0].find("dma_test.cpp:"), std::string::npos)
        << reports_[0];
  }

  alignas(kLdmAlignment) std::byte memory_[4096];
  alignas(kLdmAlignment) std::uint32_t in_[64];
  alignas(kLdmAlignment) std::uint32_t out_[64];
  test::TestList list_;
  Ldm ldm_;
  MainWindow window_;
  std::uint32_t* tile_;
  Reply* reply_;
  std::vector<std::string> reports_;
};

TEST_F(DmaTest, CopiesCountTheirReplies) {
  CopyDma dma;
  std::vector<std::uint32_t> from(5000), to(5000);
  for (std::uint32_t i = 0; i < 5000; ++i) from[i] = i;
  for (const std::size_t count : {1u, 127u, 128u, 129u, 5000u}) {
    std::fill(to.begin(), to.end(), 0xffu);
    Reply reply = 0;
    dma.get(to.data(), from.data(), count * 4, &reply);
    dma.wait(&reply, 1);
    EXPECT_EQ(reply, 1);
    EXPECT_TRUE(std::equal(to.begin(), to.begin() + static_cast<long>(count),
                           from.begin()));
    if (count < 5000) {
      EXPECT_EQ(to[count], 0xffu);
    }
    dma.put(from.data(), to.data(), count * 4, &reply);
    EXPECT_EQ(reply, 2);
  }
}

TEST_F(DmaTest, CheckedGetArrivesAtTheWait) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(tile_, in_, 256, reply_);
  EXPECT_EQ(*reply_, 0);
  EXPECT_EQ(tile_[0],
            0xffffffffu);  // poison: the input after a missing wait
  dma.wait(reply_, 1);
  EXPECT_EQ(*reply_, 1);
  EXPECT_EQ(tile_[63], 163u);
  EXPECT_TRUE(reports_.empty());
}

// Lines of main memory are dense in LDM; what lies between them is not written,
// and the last one must lie in the array, too.
TEST_F(DmaTest, LinesThatLieApart) {
  CopyDma copy;
  Reply reply = 0;
  CheckedDma dma(ldm_, window_, 2, 12);
  copy.get(tile_, in_ + 1, Lines(8, 3, 20), &reply);
  EXPECT_EQ(reply, 1);
  const std::vector<std::uint32_t> expected{101, 102, 106, 107, 111, 112};
  EXPECT_EQ(std::vector<std::uint32_t>(tile_, tile_ + 6), expected);
  dma.get(tile_, in_ + 1, Lines(8, 3, 20), reply_);
  EXPECT_EQ(tile_[5], 0xffffffffu);
  dma.wait(reply_, 1);
  EXPECT_EQ(std::vector<std::uint32_t>(tile_, tile_ + 6), expected);
  for (std::uint32_t i = 0; i < 6; ++i) tile_[i] = i;
  dma.put(out_ + 2, tile_, Lines(8, 3, 16), reply_);
  dma.wait(reply_, 2);
  EXPECT_EQ(std::vector<std::uint32_t>(out_ + 1, out_ + 13),
            (std::vector<std::uint32_t>{101, 0, 1, 104, 105, 2, 3, 108, 109, 4,
                                        5, 112}));
  EXPECT_TRUE(reports_.empty());
  dma.put(out_ + 40, tile_, Lines(8, 3, 48), reply_);
  expect("main-range");
}

TEST_F(DmaTest, CheckedPutLeavesAtTheWait) {
  CheckedDma dma(ldm_, window_, 2, 12);
  tile_[0] = 1;
  dma.put(out_, tile_, 4, reply_);
  EXPECT_EQ(out_[0], 100u);
  dma.wait(reply_, 1);
  EXPECT_EQ(out_[0], 1u);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(DmaTest, WaitTakesOnlyAsManyAsItCounts) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(tile_, in_, 4, reply_);
  dma.get(tile_ + 1, in_ + 1, 4, reply_);
  dma.wait(reply_, 1);
  EXPECT_EQ(tile_[0], 100u);
  EXPECT_EQ(tile_[1], 0xffffffffu);
  dma.wait(reply_, 2);
  EXPECT_EQ(tile_[1], 101u);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(DmaTest, MissingWait) {
  { CheckedDma(ldm_, window_, 2, 12).get(tile_, in_, 4, reply_); }
  expect("missing-wait");
}

// Each call is one report.
TEST_F(DmaTest, Reports) {
  Reply outside = 0;
  const struct {
    const char* category;
    std::function<void(CheckedDma& dma)> call;
  } rows[] = {
      {"hang",
       [&](CheckedDma& dma) {
         dma.get(tile_, in_, 4, reply_);
         dma.wait(reply_, 2);
       }},
      {"main-range",  // one word beyond the array
       [&](CheckedDma& dma) {
         dma.get(tile_, in_ + 60, 20, reply_);
         dma.wait(reply_, 1);
       }},
      {"main-range",  // only read
       [&](CheckedDma& dma) { dma.put(in_, tile_, 4, reply_); }},
      {"ldm-range",
       [&](CheckedDma& dma) { dma.get(memory_ + 4092, in_, 8, reply_); }},
      {"reply-not-ldm",
       [&](CheckedDma& dma) { dma.get(tile_, in_, 4, &outside); }},
      {"misaligned",
       [&](CheckedDma& dma) {
         dma.get(reinterpret_cast<char*>(tile_) + 2, in_, 4, reply_);
       }},
      {"bad-length", [&](CheckedDma& dma) { dma.get(tile_, in_, 0, reply_); }}};
  for (const auto& row : rows) {
    reports_.clear();
    *reply_ = 0;
    {
      CheckedDma dma(ldm_, window_, 2, 12);
      row.call(dma);
    }
    expect(row.category);
    EXPECT_EQ(in_[0], 100u);
  }
}

TEST(LdmTest, HandsOutExactlyItsBytes) {
  alignas(kLdmAlignment) std::byte memory[1024];
  Ldm ldm(memory, sizeof memory);
  EXPECT_EQ(ldm.allocate(1), memory);
  EXPECT_EQ(ldm.allocate(128), memory + 128);
  EXPECT_EQ(ldm.allocate(769), nullptr);
  EXPECT_EQ(ldm.allocate(~std::size_t{0}), nullptr);
  EXPECT_EQ(ldm.allocate(768), memory + 256);
  EXPECT_EQ(ldm.allocate(1), nullptr);
  EXPECT_EQ(ldm.used(), 1024u);
}

TEST(LdmTest, Contains) {
  std::byte memory[256] = {};
  const Ldm ldm(memory + 64, 128);
  EXPECT_TRUE(ldm.contains(memory + 64, 128));
  EXPECT_TRUE(ldm.contains(memory + 191, 1));
  EXPECT_FALSE(ldm.contains(memory + 63, 1));
  EXPECT_FALSE(ldm.contains(memory + 64, 129));
  EXPECT_FALSE(ldm.contains(memory + 193, 1));
}

TEST(LdmTest, ArenasAreOfTheMachinesSizeAndKept) {
  LdmArenas arenas;
  arenas.reserve(3, 4096);
  std::byte* first = arenas.arena(0, 4096).base();
  EXPECT_EQ(arenas.arena(2, 4096).bytes(), 4096u);
  EXPECT_NE(arenas.arena(1, 4096).base(), first);
  arenas.reserve(2, 4096);
  EXPECT_EQ(arenas.arena(0, 4096).base(), first);
  arenas.reserve(3, 8192);
  EXPECT_EQ(arenas.arena(0, 8192).bytes(), 8192u);
  // Machines of different sizes may be used alternately.
  std::byte* large = arenas.arena(2, 8192).base();
  arenas.reserve(3, 4096);
  EXPECT_EQ(arenas.arena(2, 4096).base(), large);
}

TEST(LdmLayoutTest, FitsItsLdmAndGrowsToTheTile) {
  const test::Args args{0};
  // The operands of a fused optimizer step.
  const Operation step(test::kernel_info<test::Args>(
                           "step", 0,
                           {in(kFloat16), inout(kFloat32), inout(kFloat32),
                            inout(kFloat32), out(kBFloat16)}),
                       &args);
  const Operation add(test::kAdd, &args);
  for (const Operation& operation : {step, add}) {
    const std::size_t needed =
        LdmLayout::make(operation, {1, 8192}).bytes_needed;
    EXPECT_FALSE(LdmLayout::make(operation, {needed - 1, 8192}).fits());
    std::size_t last = 0;
    for (std::size_t bytes = needed; bytes < 300000; bytes += 1000) {
      const LdmLayout layout = LdmLayout::make(operation, {bytes, 8192});
      ASSERT_TRUE(layout.fits());
      const std::size_t used =
          align_up(
              LdmLayout::kSegmentBatch * segment_bytes(operation.operand_count),
              kLdmAlignment) +
          kLdmAlignment +
          2 * LdmLayout::slot_bytes(operation, layout.tile_units);
      ASSERT_LE(used, bytes);
      ASSERT_GE(layout.tile_units, last);
      // Whole 128-byte lines of every operand, if they fit.
      ASSERT_TRUE(layout.tile_units * operation.operands[0].unit_bytes % 128 ==
                      0 ||
                  bytes == needed);
      last = layout.tile_units;
    }
    EXPECT_EQ(last, 2048u);  // 8 KiB of the widest operand
  }
}

// The last part of a matrix, which is narrower, needs no more than the others;
// and tiles, which are rounded up to whole lines, do not exceed LDM.
TEST(LdmLayoutTest, NarrowerOperandsNeedNoMore) {
  const test::Args args{0};
  test::Random random(11);
  for (int i = 0; i < 20000; ++i) {
    Operation wide(
        test::kernel_info<test::Args>(
            "part", 0, {in(kFloat16), inout(kFloat32), out(kBFloat16)}),
        &args);
    const std::size_t most = i % 2 == 0 ? 150 : 5000;
    for (int s = 0; s < 3; ++s) wide.set_unit_bytes(s, 1 + random.below(most));
    Operation narrow = wide;
    const int s = static_cast<int>(random.below(3));
    narrow.set_unit_bytes(s, 1 + random.below(wide.operands[s].unit_bytes));
    const std::size_t ldm = 2048 + random.below(40000);
    const LdmLayout layout = LdmLayout::make(wide, {ldm, 8192});
    if (!layout.fits()) continue;
    ASSERT_LE(layout.bytes_used, ldm);
    ASSERT_TRUE(LdmLayout::make(narrow, {ldm, 8192}).fits())
        << wide.operands[s].unit_bytes << " to "
        << narrow.operands[s].unit_bytes << ", LDM " << ldm;
  }
}

}  // namespace
}  // namespace swamp::runtime
