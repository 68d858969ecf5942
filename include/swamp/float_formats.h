/// @file
/// The floating-point formats, and conversions between float and the 16-bit
/// ones, on integer bits: exact for inf, nan and subnormals, independent of
/// CPU, rounding mode and flush-to-zero. A 16-bit number is its bits. The
/// rounding is that of ATen's c10::Half and c10::BFloat16. What converts to
/// the formats of at most 8 bits is in swamp/float8.h.
#ifndef SWAMP_FLOAT_FORMATS_H_
#define SWAMP_FLOAT_FORMATS_H_

#if __cplusplus < 201703L
#error "swamp's C++ headers need C++17; its C header is swamp/c_api.h"
#endif

#include <cstdint>
#include <cstring>

#include "swamp/tensor.h"

namespace swamp {

/// Specials is which patterns of a format are inf and nan.
enum class Specials : std::uint8_t {
  ieee,      ///< those with all exponent bits set
  nan,       ///< those with all bits set but the sign are nan; "fn"
  nan_zero,  ///< the pattern of -0 is nan; "fnuz", whose bias is larger by 1
  none,      ///< all numbers are finite
  /// HiFloat8 (arXiv 2409.16626): the width of exponent and mantissa depends on
  /// the exponent; 6f is inf, 80 is nan.
  tapered,
  /// Only an exponent: no sign, no mantissa and no 0; all bits set are nan.
  exponent,
  /// All finite; a negative number is the two's complement of its magnitude.
  /// With one exponent bit, whose two values have the same distances of
  /// numbers: a fixed-point number.
  complement
};

/// FloatFormat describes a format by its bits: from the highest, sign, exponent
/// and mantissa. Patterns are in the low bits of an integer.
struct FloatFormat {
  const char* name;            ///< as PyTorch's
  ScalarType type;             ///< the dtype of a tensor
  unsigned bytes;              ///< of an element; of 4 bits, of two elements
  unsigned mantissa_bits;      ///< stored; the leading 1 is not
  Specials specials;           ///< its inf and nan
  unsigned width = 8 * bytes;  ///< bits of an element

  /// The sign bit; of Specials::exponent, which has none, the bit above.
  constexpr std::uint64_t sign() const noexcept {
    return std::uint64_t{1}
           << (specials == Specials::exponent ? width : width - 1);
  }
  /// Whether the format has inf.
  constexpr bool has_infinity() const noexcept {
    return specials == Specials::ieee || specials == Specials::tapered;
  }
  /// The pattern of the largest number.
  constexpr std::uint64_t largest() const noexcept {
    return specials == Specials::tapered    ? 0x6e
           : specials == Specials::ieee     ? exponent() - 1
           : specials == Specials::nan      ? sign() - 2
           : specials == Specials::exponent ? sign() - 2
                                            : sign() - 1;
  }
  /// The pattern after that of the largest number: infinity, or nan. A format
  /// without both has no such number.
  constexpr std::uint64_t infinity() const noexcept { return largest() + 1; }
  /// All mantissa bits.
  constexpr std::uint64_t mantissa() const noexcept {
    return (std::uint64_t{1} << mantissa_bits) - 1;
  }
  /// All exponent bits.
  constexpr std::uint64_t exponent() const noexcept {
    return sign() - mantissa() - 1;
  }
  /// The number that is subtracted from a stored exponent.
  constexpr int bias() const noexcept {
    return static_cast<int>(exponent() >> (mantissa_bits + 1)) +
           (specials == Specials::nan_zero || specials == Specials::complement
                ? 1
                : 0);
  }
  // The following are for Specials::ieee and Specials::nan.
  /// The lowest positive pattern that is nan.
  constexpr std::uint64_t lowest_nan() const noexcept {
    return has_infinity() ? exponent() + 1 : sign() - 1;
  }
  /// A positive nan whose highest mantissa bit is set.
  constexpr std::uint64_t quiet_nan() const noexcept {
    return infinity() | (mantissa() / 2 + 1);
  }
  /// is_nonfinite() returns whether a pattern is inf or nan.
  constexpr bool is_nonfinite(std::uint64_t bits) const noexcept {
    return (bits & infinity()) == infinity();
  }
  /// is_nan() returns whether a pattern is nan.
  constexpr bool is_nan(std::uint64_t bits) const noexcept {
    return (bits & (sign() - 1)) >= lowest_nan();
  }
};

/// The formats, indexed by ScalarType.
inline constexpr FloatFormat kFloatFormats[] = {
    {"float16", kFloat16, 2, 10, Specials::ieee},
    {"bfloat16", kBFloat16, 2, 7, Specials::ieee},
    {"float32", kFloat32, 4, 23, Specials::ieee},
    {"float64", kFloat64, 8, 52, Specials::ieee},
    {"float8_e4m3fn", kFloat8E4M3FN, 1, 3, Specials::nan},
    {"float8_e5m2", kFloat8E5M2, 1, 2, Specials::ieee},
    {"float8_e4m3fnuz", kFloat8E4M3FNUZ, 1, 3, Specials::nan_zero},
    {"float8_e5m2fnuz", kFloat8E5M2FNUZ, 1, 2, Specials::nan_zero},
    {"float6_e3m2fn", kFloat6E3M2FN, 1, 2, Specials::none, 6},
    {"float6_e2m3fn", kFloat6E2M3FN, 1, 3, Specials::none, 6},
    {"float4_e2m1fn_x2", kFloat4E2M1FNX2, 1, 1, Specials::none, 4},
    {"hifloat8", kHiFloat8, 1, 3, Specials::tapered},
    {"float8_e8m0fnu", kFloat8E8M0FNU, 1, 0, Specials::exponent},
    {"mxint8", kMxInt8, 1, 6, Specials::complement}};

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
