// One element of each format: how it lies in memory, and its value. The base of
// the vector formats in formats-inl.h, and what the references compute with.
#ifndef SWAMP_SLAVE_FORMATS_H_
#define SWAMP_SLAVE_FORMATS_H_

#include <cstdint>

#include "swamp/float_formats.h"

namespace swamp::slave::element {

// Bits is an element as an unsigned integer, Element as kernels address it, and
// Float the type that computes with it.
template <ScalarType kType, class BitsType, class ElementType, class FloatType>
struct FormatOf {
  using Bits = BitsType;
  using Element = ElementType;
  using Float = FloatType;
  static constexpr FloatFormat kFormat = kFloatFormats[kType];
  static_assert(kFormat.type == kType && kFormat.bytes == sizeof(Bits));
  static constexpr Bits kExponent = static_cast<Bits>(kFormat.exponent());
};

struct Float16 : FormatOf<kFloat16, std::uint16_t, std::uint16_t, float> {
  static float widen(Element x) { return float16_to_float(x); }
  static Element narrow(float x) { return float16_from_float(x); }
};
struct BFloat16 : FormatOf<kBFloat16, std::uint16_t, std::uint16_t, float> {
  static float widen(Element x) { return bfloat16_to_float(x); }
  static Element narrow(float x) { return bfloat16_from_float(x); }
};
struct Float32 : FormatOf<kFloat32, std::uint32_t, float, float> {
  static float widen(float x) { return x; }
  static float narrow(float x) { return x; }
};
struct Float64 : FormatOf<kFloat64, std::uint64_t, double, double> {
  static double widen(double x) { return x; }
  static double narrow(double x) { return x; }
};
// Formats of storage: nothing computes with them.
struct Float8E4M3FN
    : FormatOf<kFloat8E4M3FN, std::uint8_t, std::uint8_t, void> {};
struct Float8E5M2 : FormatOf<kFloat8E5M2, std::uint8_t, std::uint8_t, void> {};

}  // namespace swamp::slave::element

#endif  // SWAMP_SLAVE_FORMATS_H_
