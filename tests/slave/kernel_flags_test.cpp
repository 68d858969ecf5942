// What the kernels report of inf and nan, without asking the references.
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
  const Format& format() const { return *GetParam().kernel->format; }

  std::vector<std::uint64_t> finite(std::size_t count) const {
    std::vector<std::byte> data(count * format().bytes);
    Random random(count);
    fill_finite(format(), data.data(), count, random);
    std::vector<std::uint64_t> bits(count);
    for (std::size_t i = 0; i < count; ++i) {
      bits[i] = load_bits(format(), data.data(), i);
    }
    return bits;
  }

  Result flags(const std::vector<std::uint64_t>& bits) const {
    std::vector<std::byte> data(bits.size() * format().bytes);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      store_bits(format(), data.data(), i, bits[i]);
    }
    return run_kernel(GetParam().function(), args(), data.data(), bits.size(),
                      kFirst);
  }

  // Not the first, where there are several: unscale by 1 multiplies nothing.
  const ArgsSample& args() const {
    const std::vector<ArgsSample>& all = GetParam().kernel->args;
    return all[std::min<std::size_t>(2, all.size() - 1)];
  }

  // inf, nan, signalling nan and their negatives, in turn.
  std::uint64_t nonfinite(std::size_t turn) const {
    const std::uint64_t kinds[] = {format().infinity(), format().quiet_nan(),
                                   format().infinity() | 1};
    return kinds[turn % 3] | (turn % 2 == 0 ? 0 : format().sign());
  }
};

TEST_P(KernelFlags, CleanTilesFlagNothing) {
  for (std::size_t count = 0; count <= 300; ++count) {
    const Result result = flags(finite(count));
    ASSERT_EQ(result.flagged_elements, 0u) << "count " << count;
    ASSERT_EQ(result.flagged_segments, 0u);
    ASSERT_EQ(result.first_segment, Result::kNone);
    ASSERT_EQ(result.last_segment, Result::kNone);
  }
}

// 4 vectors of the widest ISA are 128 halves or 64 floats; counts go beyond
// that, by all that a tail can be.
TEST_P(KernelFlags, OneAtEveryPosition) {
  for (const std::size_t count : {1u, 2u, 7u, 31u, 66u, 100u, 159u, 167u}) {
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<std::uint64_t> bits = finite(count);
      bits[at] = nonfinite(at);
      const Result result = flags(bits);
      ASSERT_EQ(result.flagged_elements, 1u) << at << " of " << count;
      ASSERT_EQ(result.first_index, kFirst + at) << at << " of " << count;
      ASSERT_EQ(result.first_segment, 5u);
      ASSERT_EQ(result.last_segment, 5u);
      ASSERT_EQ(result.flagged_segments, 1u);
    }
  }
}

TEST_P(KernelFlags, SeveralAreAllCounted) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + random.below(500);
    std::vector<std::uint64_t> bits = finite(count);
    const std::size_t planted = 1 + random.below(20);
    for (std::size_t i = 0; i < planted; ++i) {
      bits[random.below(count)] = nonfinite(i);
    }
    std::size_t lowest = count;
    std::size_t total = 0;
    for (std::size_t i = count; i-- > 0;) {
      if (!format().is_nonfinite(bits[i])) continue;
      lowest = i;
      ++total;
    }
    const Result result = flags(bits);
    ASSERT_EQ(result.flagged_elements, total) << "round " << round;
    ASSERT_EQ(result.first_index, kFirst + lowest) << "round " << round;
    ASSERT_EQ(result.flagged_segments, 1u);
  }
}

TEST_P(KernelFlags, EveryElementNonFinite) {
  std::vector<std::uint64_t> bits(1003);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = nonfinite(i);
  const Result result = flags(bits);
  EXPECT_EQ(result.flagged_elements, bits.size());
  EXPECT_EQ(result.first_index, kFirst);
}

INSTANTIATE_TEST_SUITE_P(All, KernelFlags, testing::ValuesIn(kernels_on_isas()),
                         kernel_on_isa_name);

}  // namespace
}  // namespace swamp::test
