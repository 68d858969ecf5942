#include <gtest/gtest.h>

#include "runtime/tile_loop.h"
#include "tests/runtime/test_kernels.h"

namespace swamp::runtime {
namespace {

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
  // Machines of different sizes may take turns.
  std::byte* large = arenas.arena(2, 8192).base();
  arenas.reserve(3, 4096);
  EXPECT_EQ(arenas.arena(2, 4096).base(), large);
}

TEST(LdmLayoutTest, FitsItsLdmAndGrowsToTheTile) {
  const test::Args args{0};
  // The operands of a fused optimizer step.
  const Operation step(
      kernel_info<test::Args>("step", 0, test::kNoFamily,
                              {in(kFloat16), inout(kFloat32), inout(kFloat32),
                               inout(kFloat32), out(kBFloat16)}),
      &args);
  const Operation unscale(test::kAdd, &args);
  for (const Operation& operation : {step, unscale}) {
    const std::size_t needed = LdmLayout::make(operation, 1, 8192).bytes_needed;
    EXPECT_FALSE(LdmLayout::make(operation, needed - 1, 8192).fits());
    std::size_t last = 0;
    for (std::size_t bytes = needed; bytes < 300000; bytes += 1000) {
      const LdmLayout layout = LdmLayout::make(operation, bytes, 8192);
      ASSERT_TRUE(layout.fits());
      const std::size_t used =
          align_up(
              LdmLayout::kSegmentBatch * segment_bytes(operation.operand_count),
              kLdmAlignment) +
          kLdmAlignment +
          2 * LdmLayout::slot_bytes(operation, layout.tile_elements);
      ASSERT_LE(used, bytes);
      ASSERT_GE(layout.tile_elements, last);
      // Whole 128-byte lines of every operand.
      ASSERT_EQ(
          layout.tile_elements * operation.operands[0].element_bytes % 128, 0u);
      last = layout.tile_elements;
    }
    EXPECT_EQ(last, 2048u);  // 8 KiB of the widest operand
  }
}

}  // namespace
}  // namespace swamp::runtime
