// The element formats as bits, whatever C++ type computes with them.
#ifndef SWAMP_TESTS_SUPPORT_FORMATS_H_
#define SWAMP_TESTS_SUPPORT_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "swamp/tensor.h"

namespace swamp::test {

struct Format {
  const char* name;
  ScalarType type;
  unsigned bytes;
  unsigned mantissa_bits;
  bool nan_payload;  // promised: the payload of a nan is one multiply's
  // Without, all exponent bits set is finite, and all bits but the sign the
  // nan.
  bool has_infinity = true;

  constexpr std::uint64_t sign() const {
    return std::uint64_t{1} << (8 * bytes - 1);
  }
  constexpr std::uint64_t exponent() const {
    return sign() - (std::uint64_t{1} << mantissa_bits);
  }
  constexpr std::uint64_t mantissa() const {
    return (std::uint64_t{1} << mantissa_bits) - 1;
  }
  constexpr bool is_nonfinite(std::uint64_t bits) const {
    const std::uint64_t special = infinity();
    return (bits & special) == special;
  }
  constexpr bool is_nan(std::uint64_t bits) const {
    return is_nonfinite(bits) && (bits & mantissa()) != 0;
  }
  // infinity() is the lowest pattern that is not finite: nan where there is no
  // infinity.
  constexpr std::uint64_t infinity() const {
    return has_infinity ? exponent() : sign() - 1;
  }
  constexpr std::uint64_t quiet_nan() const {
    return infinity() | (mantissa() / 2 + 1);
  }
};

inline constexpr Format kFloat16Format{"float16", kFloat16, 2, 10, false};
inline constexpr Format kBFloat16Format{"bfloat16", kBFloat16, 2, 7, false};
inline constexpr Format kFloat32Format{"float32", kFloat32, 4, 23, true};
inline constexpr Format kFloat64Format{"float64", kFloat64, 8, 52, true};

inline constexpr Format kFloat8E4M3FNFormat{
    "float8_e4m3fn", kFloat8E4M3FN, 1, 3, false, false};
inline constexpr Format kFloat8E5M2Format{"float8_e5m2", kFloat8E5M2, 1, 2,
                                          false};

// By ScalarType.
inline constexpr const Format* kAllFormats[] = {
    &kFloat16Format, &kBFloat16Format,     &kFloat32Format,
    &kFloat64Format, &kFloat8E4M3FNFormat, &kFloat8E5M2Format};

// Those that unscale takes.
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

// special_bits() is zero, the edges of the subnormal, normal and non-finite
// ranges, and values next to them, with both signs.
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

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_FORMATS_H_
