// The inf and nan, or zeros, that the kernels flag, tested without the
// references.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernel_cases.h"
#include "support/random.h"

namespace swamp::test {
namespace {

constexpr std::size_t kFirst = 123456789;

class KernelFlags : public testing::TestWithParam<KernelOnIsa> {
 protected:
  const KernelCase& kernel() const { return *GetParam().kernel; }
  const Format& format() const { return *kernel().operands[0].format; }

  // is_marked() returns whether this kernel flags an element.
  bool is_marked(std::uint64_t bits) const {
    return kernel().family.flagged == Flagged::zeros
               ? (bits & ~format().sign()) == 0
               : format().is_nonfinite(bits);
  }

  // Fills with elements that this kernel does not flag.
  std::vector<std::uint64_t> clean(std::size_t count) const {
    Random random(count);
    const KernelTiles tiles(kernel(), count, fill_finite, random);
    std::vector<std::uint64_t> bits(count);
    for (std::size_t i = 0; i < count; ++i) {
      bits[i] = load_bits(format(), tiles.operand(0), i);
      if (is_marked(bits[i])) bits[i] |= 1;
    }
    return bits;
  }

  Result flags(const std::vector<std::uint64_t>& bits) const {
    Random random(0);
    KernelTiles tiles(kernel(), bits.size(), fill_finite, random);
    tiles.set(bits);
    return tiles.run(GetParam().function(), args(), kFirst);
  }

  // The second sample if there is one: the first of unscale is 1, which
  // multiplies nothing.
  const ArgsSample& args() const {
    const std::vector<ArgsSample>& all = kernel().family.samples;
    return all[std::min<std::size_t>(2, all.size() - 1)];
  }

  // inf, nan, signalling nan and their negatives, in turn; or both zeros.
  std::uint64_t marked(std::size_t turn) const {
    const std::uint64_t sign = turn % 2 == 0 ? 0 : format().sign();
    if (kernel().family.flagged == Flagged::zeros) return sign;
    const std::uint64_t kinds[] = {format().infinity(), format().quiet_nan(),
                                   format().infinity() | 1};
    return kinds[turn % 3] | sign;
  }
};

std::vector<KernelOnIsa> flagging_kernels() {
  std::vector<KernelOnIsa> all = kernels_on_isas();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const KernelOnIsa& one) {
                             return one.kernel->family.flagged ==
                                    Flagged::nothing;
                           }),
            all.end());
  return all;
}

TEST_P(KernelFlags, CleanTilesFlagNothing) {
  for (std::size_t count = 0; count <= 300; ++count) {
    const Result result = flags(clean(count));
    ASSERT_EQ(result.flagged_elements, 0u) << "count " << count;
  }
}

// 4 vectors of the widest ISA are 128 halves or 64 floats; counts exceed that
// by every possible length of a tail.
TEST_P(KernelFlags, OneAtEveryPosition) {
  for (const std::size_t count : {1u, 2u, 7u, 31u, 66u, 100u, 159u, 167u}) {
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<std::uint64_t> bits = clean(count);
      bits[at] = marked(at);
      const Result result = flags(bits);
      ASSERT_EQ(result.flagged_elements, 1u) << at << " of " << count;
      ASSERT_EQ(result.first_index, kFirst + at) << at << " of " << count;
    }
  }
}

TEST_P(KernelFlags, SeveralAreAllCounted) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + random.below(500);
    std::vector<std::uint64_t> bits = clean(count);
    const std::size_t planted = 1 + random.below(20);
    for (std::size_t i = 0; i < planted; ++i) {
      bits[random.below(count)] = marked(i);
    }
    std::size_t lowest = count;
    std::size_t total = 0;
    for (std::size_t i = count; i-- > 0;) {
      if (!is_marked(bits[i])) continue;
      lowest = i;
      ++total;
    }
    const Result result = flags(bits);
    ASSERT_EQ(result.flagged_elements, total) << "round " << round;
    ASSERT_EQ(result.first_index, kFirst + lowest) << "round " << round;
  }
}

TEST_P(KernelFlags, EveryElement) {
  std::vector<std::uint64_t> bits(1003);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = marked(i);
  const Result result = flags(bits);
  EXPECT_EQ(result.flagged_elements, bits.size());
  EXPECT_EQ(result.first_index, kFirst);
}

INSTANTIATE_TEST_SUITE_P(All, KernelFlags,
                         testing::ValuesIn(flagging_kernels()),
                         kernel_on_isa_name);

}  // namespace
}  // namespace swamp::test
