// What the rules of scales compute with. The golden data of the rules are
// replayed by the program's tests.
#include "slave/scale_rules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

using namespace slave;

// log2f() of numbers just below powers of two, correctly rounded.
TEST(ScaleRules, FloorOfLog2) {
  for (int n = -148; n <= 128; ++n) {
    const double power = std::ldexp(1.0, n);
    for (int i = -64; i < 64; ++i) {
      const float x = static_cast<float>(power * (1 + std::ldexp(i, -24)));
      if (!(x > 0) || std::isinf(x)) continue;
      const auto rounded =
          static_cast<float>(std::log2(static_cast<double>(x)));
      ASSERT_EQ(floor_of_log2(x), static_cast<int>(std::floor(rounded)))
          << n << " " << i;
    }
  }
}

TEST(ScaleRules, E8M0) {
  for (std::uint32_t code = 0; code < kE8M0Nan; ++code) {
    EXPECT_EQ(e8m0_value(code) * e8m0_factor(code), 1) << code;
  }
}

// The conversions of scales: all float32 whose upper half matters.
TEST(ScaleRules, E4M3) {
  for (std::uint32_t code = 0; code < 0x7e; ++code) {
    const float low = e4m3_value(code), high = e4m3_value(code + 1);
    ASSERT_LT(low, high);
    ASSERT_EQ(e4m3_code(low), code);
    const float middle = (low + high) / 2;  // exact
    ASSERT_EQ(e4m3_code(middle), code + code % 2);
    ASSERT_EQ(e4m3_code(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(e4m3_code(std::nextafter(middle, 1000.0f)), code + 1);
  }
  EXPECT_EQ(e4m3_code(kFloatMax), 0x7eu);
  EXPECT_EQ(e4m3_code(std::nanf("")), 0x7fu);
  EXPECT_TRUE(std::isnan(e4m3_value(0x7f)));
}

}  // namespace
}  // namespace swamp::test
