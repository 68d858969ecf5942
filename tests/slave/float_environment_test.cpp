// Under flush-to-zero and under every rounding mode, all ISAs give the same
// bits as the references, which compute under the same mode.
#include <gtest/gtest.h>

#include <vector>

#include "kernel_cases.h"
#include "kernel_tiles.h"
#include "slave/kernel_list.h"
#include "support/float_environment_scope.h"
#include "support/random.h"

#ifdef SWAMP_TEST_HAS_MXCSR

namespace swamp::test {
namespace {

class KernelEnvironments : public testing::TestWithParam<KernelOnIsa> {};

TEST_P(KernelEnvironments, SameBitsOnEveryIsa) {
  const KernelCase& kernel = *GetParam().kernel;
  const bool narrow = kernel.operands[0].format->bytes == 2;
  const std::size_t count = (narrow ? 65536 : 20000) + 13;  // and a tail
  for (const Fill fill : {fill_any, fill_ordinary}) {
    Random random(6);
    KernelTiles original(kernel, count, fill, random);
    if (narrow) {
      std::vector<std::uint64_t> every(65536);
      for (std::size_t i = 0; i < every.size(); ++i) every[i] = i;
      original.set(every);
    }
    for (const FloatEnvironment& environment : kFloatEnvironments) {
      const std::vector<ArgsSample>& samples = kernel.family.samples;
      for (std::size_t i = 0; i < samples.size(); i += 2) {
        testing::AssertionResult same = testing::AssertionSuccess();
        {
          const MxcsrScope scope(environment.mxcsr);
          same = run_against_reference(GetParam(), samples[i], original, 5);
        }
        ASSERT_TRUE(same) << environment.name << ", " << samples[i].text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelEnvironments,
                         testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

// The modes are really there: a product that is flushed, one that is rounded.
TEST(FloatEnvironment, ChangesWhatTheKernelsCompute) {
  const KernelCase& kernel = kernel_cases()[slave::kernel_id::unscale_float32];
  const std::uint32_t input[] = {0x00000003u, 0x3f800001u};
  const auto run = [&](unsigned mxcsr, std::uint32_t* data) {
    data[0] = input[0];
    data[1] = input[1];
    void* const tiles[] = {data};
    const MxcsrScope scope(mxcsr);
    run_kernel(kernel, kernel.reference, kernel.family.samples[6], tiles,
               2);  // 0.7
  };
  std::uint32_t nearest[2], flushed[2], up[2], down[2];
  run(0, nearest);
  run(kFlush, flushed);
  run(0x4000, up);
  run(0x2000, down);
  EXPECT_EQ(nearest[0], 2u);
  EXPECT_EQ(flushed[0], 0u);
  EXPECT_EQ(up[1], down[1] + 1);
}

}  // namespace
}  // namespace swamp::test

#endif  // SWAMP_TEST_HAS_MXCSR
