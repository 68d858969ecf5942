// Kernels and the floating-point environment: results under flush-to-zero and
// every rounding mode, and the exception flags that kernels raise.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel_cases.h"
#include "slave/kernel_list.h"
#include "support/float_environment_scope.h"
#include "support/random.h"

namespace swamp::test {
namespace {

// Under every mode, all ISAs give the same bits as the references, which
// compute under the same mode.

class KernelEnvironments : public testing::TestWithParam<KernelOnIsa> {};

TEST_P(KernelEnvironments, SameBitsOnEveryIsa) {
  const KernelCase& kernel = *GetParam().kernel;
  // Steps of optimizers have too many operands for every pattern.
  const bool few = kernel.operands.size() <= 2;
  const bool narrow = few && kernel.operands[0].format->bytes == 2;
  const std::size_t count = (narrow ? 65536
                             : few  ? 20000
                                    : 2000) +
                            13;  // and a tail
  for (const Fill fill : {fill_any, fill_ordinary}) {
    // Every pattern of the only operand comes with the first fill.
    if (narrow && kernel.operands.size() == 1 && fill != fill_any) continue;
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
        if (samples[i].non_temporal) continue;  // the same arithmetic
        testing::AssertionResult same = testing::AssertionSuccess();
        {
          const ControlScope scope(environment.control);
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

// The modes have an effect: one product is flushed, one is rounded.
TEST(FloatEnvironment, ChangesTheResultsOfKernels) {
  const KernelCase& kernel =
      case_of(slave::kernel_of(KernelFamily::unscale, {kFloat32}));
  const std::uint32_t input[] = {0x00000003u, 0x3f800001u};
  const auto run = [&](unsigned control, std::uint32_t* data) {
    data[0] = input[0];
    data[1] = input[1];
    void* const tiles[] = {data};
    const ControlScope scope(control);
    run_kernel(kernel, kernel.reference, kernel.family.samples[6], tiles,
               2);  // 0.7
  };
  std::uint32_t nearest[2], flushed[2], up[2], down[2];
  run(0, nearest);
  run(kFlush, flushed);
  run(kUp, up);
  run(kDown, down);
  EXPECT_EQ(nearest[0], 2u);
  EXPECT_EQ(flushed[0], kFlush == 0 ? 2u : 0u);
  EXPECT_EQ(up[1], down[1] + 1);
}

// Ordinary data raises no "invalid operation" on any ISA: a caller may have
// unmasked it.
class FloatFlags : public testing::TestWithParam<KernelOnIsa> {};

// Positive, with magnitudes near 1, so that no root of a negative number is
// taken.
void fill_positive(const Format& format, void* data, std::size_t count,
                   Random& random) {
  fill_ordinary(format, data, count, random);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = load_bits(format, data, i);
    store_bits(format, data, i, bits & ~format.sign());
  }
}

TEST_P(FloatFlags, OrdinaryDataIsNotInvalid) {
  const KernelCase& kernel = *GetParam().kernel;
#ifdef __clang__
  // clang vectorises the plain loops of EMU128, computes on unused lanes and
  // ignores the flags.
  if (std::strcmp(GetParam().table->isa, "scalar") == 0) return;
#endif
  Random random(7);
  for (const ArgsSample& args : kernel.family.samples) {
    if (args.text.find("nan") != std::string::npos) continue;
    for (std::size_t count = 1; count < 300; count += count < 70 ? 1 : 13) {
      KernelTiles tiles(kernel, count, fill_positive, random);
      std::feclearexcept(FE_ALL_EXCEPT);
      tiles.run(GetParam().function(), args, 3);
      ASSERT_EQ(std::fetestexcept(FE_INVALID), 0)
          << args.text << " count " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FloatFlags, testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

}  // namespace
}  // namespace swamp::test
