// DMA with reply counters, and what transfer mode `check` finds.
#include "runtime/dma.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
    constexpr KernelInfo kCopy = kernel_info<test::Args>(
        "copy", 0, test::kNoFamily, {in(kFloat32), out(kFloat32)});
    return Operation(kCopy, &args);
  }

  // expect() wants exactly one report so far, of this category.
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
            0xffffffffu);  // poison: what a forgotten wait computes on
  dma.wait(reply_, 1);
  EXPECT_EQ(*reply_, 1);
  EXPECT_EQ(tile_[63], 163u);
  EXPECT_TRUE(reports_.empty());
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

TEST_F(DmaTest, Hang) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(tile_, in_, 4, reply_);
  dma.wait(reply_, 2);
  expect("hang");
}

TEST_F(DmaTest, MainRange) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(tile_, in_ + 60, 20, reply_);  // one word beyond the array
  dma.wait(reply_, 1);
  expect("main-range");
}

TEST_F(DmaTest, PutIntoAnArrayThatIsOnlyRead) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.put(in_, tile_, 4, reply_);
  expect("main-range");
  EXPECT_EQ(in_[0], 100u);
}

TEST_F(DmaTest, LdmRange) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(memory_ + 4092, in_, 8, reply_);
  expect("ldm-range");
}

TEST_F(DmaTest, ReplyNotLdm) {
  CheckedDma dma(ldm_, window_, 2, 12);
  Reply outside = 0;
  dma.get(tile_, in_, 4, &outside);
  expect("reply-not-ldm");
}

TEST_F(DmaTest, Misaligned) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(reinterpret_cast<char*>(tile_) + 2, in_, 4, reply_);
  expect("misaligned");
}

TEST_F(DmaTest, BadLength) {
  CheckedDma dma(ldm_, window_, 2, 12);
  dma.get(tile_, in_, 0, reply_);
  expect("bad-length");
}

}  // namespace
}  // namespace swamp::runtime
