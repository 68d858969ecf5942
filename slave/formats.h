// One element of each format: how it lies in memory, and its value. The base of
// the vector formats in formats-inl.h, and what the references compute with.
#ifndef SWAMP_SLAVE_FORMATS_H_
#define SWAMP_SLAVE_FORMATS_H_

#include <cstdint>

#include "swamp/float_formats.h"

namespace swamp::slave {

// What the list of kernels names besides a ScalarType.
inline constexpr std::uint8_t kNone = 0xff, kInt32 = 0x80, kInt64 = 0x81;

namespace element {

// Bits is an element as an unsigned integer, Element as kernels address it, and
// Float the type that computes with it.
template <ScalarType kType, class BitsType, class ElementType, class FloatType>
struct Storage {
  using Bits = BitsType;
  using Element = ElementType;
  using Float = FloatType;
  static constexpr FloatFormat kFormat = kFloatFormats[kType];
  static_assert(kFormat.type == kType && kFormat.bytes == sizeof(Bits));
  // All bits that are set in inf and nan.
  static constexpr Bits kNonfinite = static_cast<Bits>(kFormat.infinity());
};

struct Float16 : Storage<kFloat16, std::uint16_t, std::uint16_t, float> {
  static float widen(Element x) { return float16_to_float(x); }
  static Element narrow(float x) { return float16_from_float(x); }
};
struct BFloat16 : Storage<kBFloat16, std::uint16_t, std::uint16_t, float> {
  static float widen(Element x) { return bfloat16_to_float(x); }
  static Element narrow(float x) { return bfloat16_from_float(x); }
};
struct Float32 : Storage<kFloat32, std::uint32_t, float, float> {
  static float widen(float x) { return x; }
  static float narrow(float x) { return x; }
};
struct Float64 : Storage<kFloat64, std::uint64_t, double, double> {
  static double widen(double x) { return x; }
  static double narrow(double x) { return x; }
};

// Float8 rounds to nearest, ties to even, on integer bits. Larger numbers than
// the largest become inf, or the largest in a format without inf, as in PyTorch
// 2.13's Tensor.to().
template <ScalarType kType>
struct Float8 : Storage<kType, std::uint8_t, std::uint8_t, float> {
  static constexpr FloatFormat kFormat = kFloatFormats[kType];
  static constexpr std::uint32_t kCut = 23 - kFormat.mantissa_bits;
  static constexpr std::uint32_t kLeast = 128 - kFormat.bias();  // exponent
  static constexpr std::uint32_t kOverflow =
      kFormat.has_infinity() ? kFormat.infinity() : kFormat.largest();

  static float widen(std::uint8_t x) {
    const std::uint32_t sign = (x & 0x80u) << 24, magnitude = x & 0x7fu;
    if (magnitude > kFormat.largest()) {
      const bool nan = kFormat.is_nan(magnitude);
      return float_from_bits(sign | (nan ? 0x7fc00000u : 0x7f800000u));
    }
    if (magnitude > kFormat.mantissa()) {
      return float_from_bits(sign |
                             ((magnitude << kCut) + ((kLeast - 1) << 23)));
    }
    // A subnormal number, whose last place is a normal float.
    const float value = static_cast<float>(magnitude) *
                        float_from_bits((kLeast - kFormat.mantissa_bits) << 23);
    return float_from_bits(sign | float_to_bits(value));
  }
  static std::uint8_t narrow(float x) {
    const std::uint32_t bits = float_to_bits(x);
    const std::uint32_t sign = bits >> 24 & 0x80u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    std::uint32_t code = 0;
    const auto rounded = [](std::uint32_t value, std::uint32_t cut) {
      return (value + (1u << (cut - 1)) - 1 + (value >> cut & 1)) >> cut;
    };
    const std::uint32_t exponent = magnitude >> 23;
    if (magnitude > 0x7f800000u) {
      code = 0x7f;
    } else if (exponent >= kLeast) {
      code = rounded(magnitude - ((kLeast - 1) << 23), kCut);
      if (code > kOverflow) code = kOverflow;
    } else if (exponent + kFormat.mantissa_bits + 1 >= kLeast) {
      code = rounded((magnitude & 0x7fffffu) | 0x800000u,
                     kCut + kLeast - exponent);
    }
    return static_cast<std::uint8_t>(sign | code);
  }
};
using Float8E4M3FN = Float8<kFloat8E4M3FN>;
using Float8E5M2 = Float8<kFloat8E5M2>;
struct None {};

// NamedFormat is the format that the list of kernels calls kType. The formats
// that kernels compute with are arguments, because vectors have others.
template <std::uint8_t kType, class F16, class BF16, class F32, class E4M3,
          class E5M2>
constexpr auto named_format() {
  if constexpr (kType == kFloat16) return F16{};
  if constexpr (kType == kBFloat16) return BF16{};
  if constexpr (kType == kFloat32) return F32{};
  if constexpr (kType == kFloat64) return Float64{};
  if constexpr (kType == kFloat8E4M3FN) return E4M3{};
  if constexpr (kType == kFloat8E5M2) return E5M2{};
  if constexpr (kType == kInt32) return std::int32_t{};
  if constexpr (kType == kInt64) return std::int64_t{};
  if constexpr (kType == kNone) return None{};
}
template <std::uint8_t kType, class... Formats>
using NamedFormat = decltype(named_format<kType, Formats...>());

}  // namespace element
}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_FORMATS_H_
