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
  static constexpr Bits kExponent = static_cast<Bits>(kFormat.exponent());
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
// Formats of storage: nothing computes with them.
struct Float8E4M3FN : Storage<kFloat8E4M3FN, std::uint8_t, std::uint8_t, void> {
};
struct Float8E5M2 : Storage<kFloat8E5M2, std::uint8_t, std::uint8_t, void> {};
struct None {};

// NamedFormat is the format that the list of kernels calls kType. The formats
// that kernels compute with are arguments, because vectors have others.
template <std::uint8_t kType, class F16, class BF16, class F32>
constexpr auto named_format() {
  if constexpr (kType == kFloat16) return F16{};
  if constexpr (kType == kBFloat16) return BF16{};
  if constexpr (kType == kFloat32) return F32{};
  if constexpr (kType == kFloat64) return Float64{};
  if constexpr (kType == kFloat8E4M3FN) return Float8E4M3FN{};
  if constexpr (kType == kFloat8E5M2) return Float8E5M2{};
  if constexpr (kType == kInt32) return std::int32_t{};
  if constexpr (kType == kInt64) return std::int64_t{};
  if constexpr (kType == kNone) return None{};
}
template <std::uint8_t kType, class F16, class BF16, class F32>
using NamedFormat = decltype(named_format<kType, F16, BF16, F32>());

}  // namespace element
}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_FORMATS_H_
