// The scalar conversions against exact arithmetic in double.
#include "swamp/float_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/float_environment_scope.h"
#include "support/formats.h"

namespace swamp::test {
namespace {

// Conversion is one 16-bit format: its functions, and its constants for the
// exact result.
struct Conversion {
  const Format* format;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  int lowest_exponent;  // of a normal number
  int digits;           // with the hidden one
};
constexpr Conversion kConversions[] = {
    {&kFloat16Format, &float16_to_float, &float16_from_float, -14, 11},
    {&kBFloat16Format, &bfloat16_to_float, &bfloat16_from_float, -126, 8}};

double exact_value(const Conversion& c, std::uint32_t bits) {
  const auto mantissa = static_cast<int>(bits & c.format->mantissa());
  const auto exponent = static_cast<int>((bits & c.format->exponent()) >>
                                         c.format->mantissa_bits);
  const double sign = (bits & c.format->sign()) != 0 ? -1.0 : 1.0;
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, c.lowest_exponent - c.digits + 1);
  }
  return sign * std::ldexp(mantissa + (1 << (c.digits - 1)),
                           c.lowest_exponent - c.digits + exponent);
}

// exact_narrow() counts in units of the result's last place: exact in double,
// std::rint() rounds ties to even, and a carry runs into the exponent.
std::uint32_t exact_narrow(const Conversion& c, float value) {
  const auto sign =
      std::signbit(value) ? static_cast<std::uint32_t>(c.format->sign()) : 0u;
  const auto infinity = static_cast<std::uint32_t>(c.format->infinity());
  if (std::isinf(value)) return sign | infinity;
  if (value == 0.0f) return sign;
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = std::max(std::ilogb(magnitude), c.lowest_exponent);
  const double units =
      std::rint(std::ldexp(magnitude, c.digits - 1 - exponent));
  const auto bits = (static_cast<std::uint32_t>(exponent - c.lowest_exponent)
                     << c.format->mantissa_bits) +
                    static_cast<std::uint32_t>(units);
  return sign | std::min(bits, infinity);
}

void expect_narrow(const Conversion& c, std::uint32_t bits) {
  const float value = float_from_bits(bits);
  const std::uint16_t actual = c.narrow(value);
  if (std::isnan(value)) {
    ASSERT_TRUE(c.format->is_nan(actual)) << std::hex << bits;
    ASSERT_EQ(actual >> 15, bits >> 31) << std::hex << bits;
    return;
  }
  ASSERT_EQ(actual, exact_narrow(c, value))
      << c.format->name << " of " << std::hex << bits;
}

TEST(FloatFormats, EveryPatternWidensExactlyAndComesBack) {
  for (const Conversion& c : kConversions) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto narrow = static_cast<std::uint16_t>(bits);
      const float wide = c.widen(narrow);
      if (c.format->is_nan(bits)) {
        ASSERT_TRUE(std::isnan(wide)) << c.format->name << std::hex << bits;
        ASSERT_TRUE(c.format->is_nan(c.narrow(wide))) << std::hex << bits;
        continue;
      }
      const float expected =
          c.format->is_nonfinite(bits)
              ? std::copysign(std::numeric_limits<float>::infinity(),
                              bits >= 0x8000 ? -1.0f : 1.0f)
              : static_cast<float>(exact_value(c, bits));
      ASSERT_EQ(float_to_bits(wide), float_to_bits(expected))
          << c.format->name << std::hex << bits;
      ASSERT_EQ(c.narrow(wide), narrow);
    }
  }
}

TEST(FloatFormats, NarrowingOfASweepOfAllFloats) {
#ifdef SWAMP_TEST_EMULATED
  constexpr std::uint64_t kStep = 4099;
#else
  constexpr std::uint64_t kStep = 257;
#endif
  for (const Conversion& c : kConversions) {
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32);
         bits += kStep) {
      expect_narrow(c, static_cast<std::uint32_t>(bits));
      if (HasFatalFailure()) return;
    }
  }
}

// Around every value of the format and around every tie between two: includes
// overflow (65504, 65520) and the smallest subnormals (2^-24, 2^-25).
TEST(FloatFormats, NarrowingAroundEveryValueAndTie) {
  for (const Conversion& c : kConversions) {
    const auto infinity = static_cast<std::uint32_t>(c.format->infinity());
    for (std::uint32_t bits = 0; bits < infinity; ++bits) {
      const double low = exact_value(c, bits);
      const double high = bits + 1 < infinity
                              ? exact_value(c, bits + 1)
                              : 2 * low - exact_value(c, bits - 1);
      for (const double centre : {low, (low + high) / 2}) {
        const auto rounded = static_cast<float>(centre);
        for (std::uint32_t near = 0; near < 5; ++near) {
          const std::uint32_t wide = float_to_bits(rounded) + near - 2;
          expect_narrow(c, wide & 0x7fffffffu);
          expect_narrow(c, wide | 0x80000000u);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

#if defined(__FLT16_MANT_DIG__) || defined(__aarch64__)
// The compiler's own half, converted by its run-time library.
TEST(FloatFormats, Float16AgreesWithTheCompiler) {
#if defined(__aarch64__)
  typedef __fp16 Half;  // GCC 12 has _Float16 in C only
#else
  __extension__ typedef _Float16 Half;
#endif
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1021) {
    const float value = float_from_bits(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    const auto half = static_cast<Half>(value);
    std::uint16_t expected;
    std::memcpy(&expected, &half, sizeof expected);
    ASSERT_EQ(float16_from_float(value), expected) << std::hex << bits;
    ASSERT_EQ(float_to_bits(float16_to_float(expected)),
              float_to_bits(static_cast<float>(half)));
  }
}
#endif

TEST(FloatFormats, DoNotDependOnTheFloatEnvironment) {
  // By volatile pointers, so that the compiler converts nothing in advance.
  for (const Conversion& c : kConversions) {
    float (*volatile widen)(std::uint16_t) = c.widen;
    std::uint16_t (*volatile narrow)(float) = c.narrow;
    for (const FloatEnvironment& environment : kFloatEnvironments) {
      SCOPED_TRACE(environment.name);
      for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        if (c.format->is_nan(bits)) continue;
        std::uint16_t back;
        float value;
        {
          const ControlScope scope(environment.control);
          value = widen(static_cast<std::uint16_t>(bits));
          back = narrow(value);
        }
        ASSERT_EQ(float_to_bits(value),
                  float_to_bits(c.widen(static_cast<std::uint16_t>(bits))));
        ASSERT_EQ(back, bits);
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
