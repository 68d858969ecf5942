/// @file
/// Conversions between float and the 16-bit formats, on integer bits: exact for
/// inf, nan and subnormals, independent of CPU, rounding mode and
/// flush-to-zero. A 16-bit number is its bits. The rounding is that of ATen's
/// c10::Half and c10::BFloat16.
#ifndef SWAMP_FLOAT_FORMATS_H_
#define SWAMP_FLOAT_FORMATS_H_

#if __cplusplus < 201703L
#error "swamp's C++ headers need C++17; its C header is swamp/c_api.h"
#endif

#include <cstdint>
#include <cstring>

namespace swamp {

/// float_to_bits() returns the bits of an IEEE binary32.
inline std::uint32_t float_to_bits(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// float_from_bits() is the inverse of float_to_bits().
inline float float_from_bits(std::uint32_t bits) noexcept {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// float16_to_float() widens an IEEE binary16; every value is exact.
inline float float16_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // inf, nan
    return float_from_bits(sign | 0x7f800000u | (magnitude << 13));
  }
  if (magnitude >= 0x0400u) {  // normal: rebias the exponent
    return float_from_bits(sign | ((magnitude << 13) + (112u << 23)));
  }
  // Subnormal: magnitude * 2^-24, a normal float.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return float_from_bits(sign | float_to_bits(value));
}

/// float16_from_float() rounds to nearest, ties to even; overflow gives inf; a
/// nan stays a (quiet) nan.
inline std::uint16_t float16_from_float(float value) noexcept {
  const std::uint32_t bits = float_to_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {  // nan
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and more
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14 and more: normal
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  } else if (magnitude >= 0x33000000u) {  // 2^-25 and more: subnormal
    const std::uint32_t shift = 126u - (magnitude >> 23);  // 14..24
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t odd = (mantissa >> shift) & 1u;
    half = (mantissa + (1u << (shift - 1)) - 1u + odd) >> shift;
  } else {
    half = 0;
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// bfloat16_to_float() widens a bfloat16; every value is exact.
inline float bfloat16_to_float(std::uint16_t value) noexcept {
  return float_from_bits(static_cast<std::uint32_t>(value) << 16);
}

/// bfloat16_from_float() rounds to nearest, ties to even; overflow gives inf; a
/// nan stays a (quiet) nan.
inline std::uint16_t bfloat16_from_float(float value) noexcept {
  const std::uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >>
                                    16);
}

}  // namespace swamp

#endif  // SWAMP_FLOAT_FORMATS_H_
