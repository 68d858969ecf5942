// The element formats as bits, whatever C++ type computes with them.
#ifndef SWAMP_TESTS_SUPPORT_FORMATS_H_
#define SWAMP_TESTS_SUPPORT_FORMATS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ios>
#include <limits>
#include <sstream>
#include <vector>

#include "swamp/float_formats.h"
#include "swamp/tensor.h"

namespace swamp::test {

using Format = FloatFormat;

// Promised: the payload of a nan is that of one multiplication.
inline bool has_nan_payload(const Format& format) { return format.bytes >= 4; }

inline constexpr const Format& kFloat16Format = kFloatFormats[kFloat16];
inline constexpr const Format& kBFloat16Format = kFloatFormats[kBFloat16];
inline constexpr const Format& kFloat32Format = kFloatFormats[kFloat32];
inline constexpr const Format& kFloat64Format = kFloatFormats[kFloat64];
inline constexpr const Format& kFloat8E4M3FNFormat =
    kFloatFormats[kFloat8E4M3FN];
inline constexpr const Format& kFloat8E5M2Format = kFloatFormats[kFloat8E5M2];

// By ScalarType.
inline constexpr const Format* kAllFormats[] = {
    &kFloat16Format, &kBFloat16Format,     &kFloat32Format,
    &kFloat64Format, &kFloat8E4M3FNFormat, &kFloat8E5M2Format};

// Those of parameters.
inline constexpr const Format* kFormats[] = {&kFloat16Format, &kBFloat16Format,
                                             &kFloat32Format, &kFloat64Format};

inline const Format& format_of(ScalarType type) {
  return *kAllFormats[static_cast<std::size_t>(type)];
}

inline std::uint64_t load_bits(const Format& format, const void* data,
                               std::size_t index) {
  const auto* at = static_cast<const std::byte*>(data) + index * format.bytes;
  if (format.bytes == 1) {
    std::uint8_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
  }
  if (format.bytes == 2) {
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
  }
  if (format.bytes == 4) {
    std::uint32_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
  }
  std::uint64_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

inline void store_bits(const Format& format, void* data, std::size_t index,
                       std::uint64_t bits) {
  auto* at = static_cast<std::byte*>(data) + index * format.bytes;
  if (format.bytes == 1) {
    const auto narrow = static_cast<std::uint8_t>(bits);
    std::memcpy(at, &narrow, sizeof narrow);
  } else if (format.bytes == 2) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    std::memcpy(at, &narrow, sizeof narrow);
  } else if (format.bytes == 4) {
    const auto narrow = static_cast<std::uint32_t>(bits);
    std::memcpy(at, &narrow, sizeof narrow);
  } else {
    std::memcpy(at, &bits, sizeof bits);
  }
}

// value_of() is the value of bits, bits_of() the bits of a float that is
// rounded to a format of 16 or 32 bits.
inline double value_of(const Format& format, std::uint64_t bits) {
  if (format.bytes == 1) {
    const std::uint64_t magnitude = bits & (format.sign() - 1);
    const bool negative = (bits & format.sign()) != 0;
    double value = std::numeric_limits<double>::infinity();
    if (format.is_nan(bits)) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (!format.is_nonfinite(bits)) {
      const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
      const std::uint64_t leading = exponent == 0 ? 0 : format.mantissa() + 1;
      value = std::ldexp(
          static_cast<double>((magnitude & format.mantissa()) | leading),
          (exponent == 0 ? 1 : exponent) - format.bias() -
              static_cast<int>(format.mantissa_bits));
    }
    return negative ? -value : value;
  }
  if (format.type == kFloat64) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  const auto half = static_cast<std::uint16_t>(bits);
  if (format.type == kFloat16) return float16_to_float(half);
  if (format.type == kBFloat16) return bfloat16_to_float(half);
  return float_from_bits(static_cast<std::uint32_t>(bits));
}
inline std::uint64_t bits_of(const Format& format, float value) {
  if (format.type == kFloat16) return float16_from_float(value);
  if (format.type == kBFloat16) return bfloat16_from_float(value);
  return float_to_bits(value);
}

// special_bits() returns zero, the edges of the subnormal, normal and
// non-finite ranges, and values next to them, with both signs.
inline std::vector<std::uint64_t> special_bits(const Format& format) {
  const std::uint64_t step = format.mantissa() + 1;
  const std::uint64_t exponent = format.exponent();
  const std::uint64_t exponents[] = {0,
                                     step,
                                     2 * step,
                                     exponent / 2 / step * step,         // 1
                                     exponent / 2 / step * step + step,  // 2
                                     exponent - step,
                                     exponent};
  const std::uint64_t half = step / 2;
  const std::uint64_t mantissas[] = {0,    1,        2,        half - 1,
                                     half, half + 1, step - 2, step - 1};
  std::vector<std::uint64_t> all;
  for (const std::uint64_t e : exponents) {
    for (const std::uint64_t m : mantissas) {
      all.push_back(e | m);
      all.push_back(e | m | format.sign());
    }
  }
  return all;
}

// same_elements() compares bits; if the payload of a nan is not promised, any
// nan equals any other.
inline testing::AssertionResult same_elements(const Format& format,
                                              const void* actual,
                                              const void* expected,
                                              std::size_t count,
                                              bool nan_payload) {
  if (count == 0 || std::memcmp(actual, expected, count * format.bytes) == 0) {
    return testing::AssertionSuccess();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t a = load_bits(format, actual, i);
    const std::uint64_t e = load_bits(format, expected, i);
    if (a == e) continue;
    if (!nan_payload && format.is_nan(a) && format.is_nan(e)) continue;
    // AssertionFailure() formats each value alone and forgets std::hex.
    std::ostringstream text;
    text << format.name << " element " << i << " of " << count << ": 0x"
         << std::hex << a << ", expected 0x" << e;
    return testing::AssertionFailure() << text.str();
  }
  return testing::AssertionSuccess();
}

inline testing::AssertionResult same_elements(const Format& format,
                                              const void* actual,
                                              const void* expected,
                                              std::size_t count) {
  return same_elements(format, actual, expected, count,
                       has_nan_payload(format));
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_FORMATS_H_
