// Every kernel against its scalar reference, on many bit patterns.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernel_cases.h"
#include "slave/kernel_id.h"
#include "support/compare.h"
#include "support/random.h"

namespace swamp::test {
namespace {

class KernelPatterns : public testing::TestWithParam<KernelOnIsa> {
 protected:
  // expect_reference() runs kernel and reference on copies of `input`, with
  // every sample of arguments.
  void expect_reference(const std::vector<std::uint64_t>& input) {
    const KernelCase& kernel = *GetParam().kernel;
    const Format& format = *kernel.format;
    const std::size_t bytes = input.size() * format.bytes;
    std::vector<std::byte> original(bytes), actual, expected;
    for (std::size_t i = 0; i < input.size(); ++i) {
      store_bits(format, original.data(), i, input[i]);
    }
    for (const ArgsSample& args : kernel.args) {
      SCOPED_TRACE(args.text);
      actual = expected = original;
      const KernelResult got = run_kernel(GetParam().function(), args,
                                          actual.data(), input.size(), 77);
      const KernelResult want =
          run_kernel(kernel.reference, args, expected.data(), input.size(), 77);
      ASSERT_TRUE(same_result(got, want));
      ASSERT_TRUE(same_elements(format, actual.data(), expected.data(),
                                input.size(),
                                format.nan_payload && args.nan_payload));
      if (kernel.access == Access::in) {
        ASSERT_EQ(actual, original);
      }
    }
  }
};

TEST_P(KernelPatterns, RowIsTheKernelOfItsName) {
  const KernelOnIsa& param = GetParam();
  EXPECT_STREQ(param.table->rows[param.kernel->id].name, param.kernel->name);
}

TEST_P(KernelPatterns, EveryPatternOfANarrowFormat) {
  const unsigned bytes = GetParam().kernel->format->bytes;
  if (bytes > 2) return;
  std::vector<std::uint64_t> input(std::size_t{1} << (8 * bytes));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = i;
  expect_reference(input);
}

TEST_P(KernelPatterns, SpecialAndRandomPatterns) {
  const Format& format = *GetParam().kernel->format;
  std::vector<std::uint64_t> input = special_bits(format);
  Random random(20011);
  while (input.size() < 20011) input.push_back(random.next());
  expect_reference(input);
}

// Without inf and nan, so that the kernels' quick path is the one that runs.
TEST_P(KernelPatterns, FinitePatterns) {
  const Format& format = *GetParam().kernel->format;
  std::vector<std::uint64_t> input = special_bits(format);
  Random random(20021);
  while (input.size() < 20021) input.push_back(random.next());
  for (std::uint64_t& bits : input) {
    if (format.is_nonfinite(bits)) bits &= ~(format.exponent() / 2);
  }
  expect_reference(input);
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
