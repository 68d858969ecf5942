// Every kernel against its scalar reference, on many bit patterns.
#include <gtest/gtest.h>

#include <vector>

#include "kernel_cases.h"
#include "kernel_tiles.h"
#include "slave/kernel_list.h"
#include "support/random.h"

namespace swamp::test {
namespace {

class KernelPatterns : public testing::TestWithParam<KernelOnIsa> {
 protected:
  const KernelCase& kernel() const { return *GetParam().kernel; }

  // expect_reference() runs kernel and reference with every sample of
  // arguments.
  void expect_reference(const KernelTiles& original) {
    for (const ArgsSample& args : kernel().family.samples) {
      ASSERT_TRUE(run_against_reference(GetParam(), args, original, 77))
          << args.text;
    }
  }
};

TEST_P(KernelPatterns, RowIsTheKernelOfItsName) {
  const KernelOnIsa& param = GetParam();
  EXPECT_STREQ(param.table->rows[param.kernel->id].name, param.kernel->name);
}

TEST_P(KernelPatterns, EveryPatternOfANarrowFormat) {
  const unsigned bytes = kernel().operands[0].format->bytes;
  if (bytes > 2) return;
  std::vector<std::uint64_t> input(std::size_t{1} << (8 * bytes));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = i;
  Random random(1);
  KernelTiles tiles(kernel(), input.size(), fill_ordinary, random);
  tiles.set(input);
  expect_reference(tiles);
}

TEST_P(KernelPatterns, SpecialAndRandomPatterns) {
  Random random(20011);
  KernelTiles tiles(kernel(), 20011, fill_any, random);
  tiles.set(special_bits(*kernel().operands[0].format));
  expect_reference(tiles);
}

// Without inf and nan, so that the kernels' quick path is the one that runs.
TEST_P(KernelPatterns, FinitePatterns) {
  Random random(20021);
  expect_reference(KernelTiles(kernel(), 20021, fill_finite, random));
}

// Near 1 in all operands, so that every term of a sum is seen in its last bits.
TEST_P(KernelPatterns, OrdinaryPatterns) {
  Random random(20023);
  expect_reference(KernelTiles(kernel(), 20023, fill_ordinary, random));
}

INSTANTIATE_TEST_SUITE_P(All, KernelPatterns,
                         testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

TEST(KernelTables, EveryIsaHasEveryKernelAndScalarIsThere) {
  EXPECT_EQ(kernel_cases().size(),
            static_cast<std::size_t>(slave::kernel_id::count));
  ASSERT_FALSE(runnable_tables().empty());
  // Best first; the last is what every CPU can run.
  EXPECT_STREQ(runnable_tables().back()->isa, "scalar");
}

}  // namespace
}  // namespace swamp::test
