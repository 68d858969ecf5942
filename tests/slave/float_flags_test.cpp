// Ordinary data raises no "invalid operation" on any ISA: a caller may have
// unmasked it.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel_cases.h"
#include "kernel_tiles.h"
#include "support/random.h"

namespace swamp::test {
namespace {

class FloatFlags : public testing::TestWithParam<KernelOnIsa> {};

// Of magnitudes near 1 and positive, so that no root is of a negative number.
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
  // clang vectorises the plain loops of EMU128 and computes on lanes that
  // nobody asked for; it does not know of flags.
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
