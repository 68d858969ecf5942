// Under flush-to-zero and under every rounding mode, all ISAs give the same
// bits as the references, which compute under the same mode.
#include <gtest/gtest.h>

#include <vector>

#include "kernel_cases.h"
#include "support/compare.h"
#include "support/float_environment_scope.h"
#include "support/random.h"

#ifdef SWAMP_TEST_HAS_MXCSR

namespace swamp::test {
namespace {

class KernelEnvironments : public testing::TestWithParam<KernelOnIsa> {};

std::vector<std::byte> all_patterns(const Format& format) {
  constexpr std::size_t kCount = 65536 + 13;  // and a tail
  std::vector<std::byte> data(kCount * format.bytes);
  Random random(6);
  fill_any(format, data.data(), kCount, random);
  if (format.bytes == 2) {
    for (std::size_t i = 0; i < 65536; ++i) {
      store_bits(format, data.data(), i, i);
    }
  }
  return data;
}

TEST_P(KernelEnvironments, SameBitsOnEveryIsa) {
  const KernelCase& kernel = *GetParam().kernel;
  const Format& format = *kernel.format;
  const std::vector<std::byte> original = all_patterns(format);
  const std::size_t count = original.size() / format.bytes;
  for (const FloatEnvironment& environment : kFloatEnvironments) {
    for (std::size_t i = 0; i < kernel.args.size(); i += 2) {
      const ArgsSample& args = kernel.args[i];
      SCOPED_TRACE(std::string(environment.name) + ", " + args.text);
      std::vector<std::byte> actual = original;
      std::vector<std::byte> expected = original;
      KernelResult got, want;
      {
        const MxcsrScope scope(environment.mxcsr);
        got = run_kernel(GetParam().function(), args, actual.data(), count);
        want = run_kernel(kernel.reference, args, expected.data(), count);
      }
      ASSERT_TRUE(same_result(got, want));
      ASSERT_TRUE(same_elements(format, actual.data(), expected.data(), count,
                                format.nan_payload && args.nan_payload));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelEnvironments,
                         testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

// The modes are really there: a product that is flushed, one that is rounded.
TEST(FloatEnvironment, ChangesWhatTheKernelsCompute) {
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.format != &kFloat32Format || kernel.access != Access::inout) {
      continue;
    }
    const std::uint32_t input[] = {0x00000003u, 0x3f800001u};
    const auto run = [&](unsigned mxcsr, std::uint32_t* data) {
      data[0] = input[0];
      data[1] = input[1];
      const MxcsrScope scope(mxcsr);
      run_kernel(kernel.reference, kernel.args[6], data, 2);  // 0.7
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
}

}  // namespace
}  // namespace swamp::test

#endif  // SWAMP_TEST_HAS_MXCSR
