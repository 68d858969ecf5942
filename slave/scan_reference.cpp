#include <cmath>
#include <cstdint>

#include "slave/kernel_args.h"
#include "slave/reference.h"
#include "swamp/float_formats.h"

namespace swamp::slave::reference {
namespace {

// value_of() is sign * mantissa * 2^exponent of a finite element, in parts that
// no float environment can change.
double value_of(bool negative, std::uint32_t mantissa, int exponent) {
  const double magnitude = std::ldexp(mantissa, exponent);
  return negative ? -magnitude : magnitude;
}

enum class Kind { finite, infinite, nan };
Kind kind_of(bool special, bool zero_mantissa) {
  if (!special) return Kind::finite;
  return zero_mantissa ? Kind::infinite : Kind::nan;
}

// Each format says what an element is and, where finite, its value.
struct Float32 {
  using Storage = std::uint32_t;
  static Kind kind(Storage x) {
    return kind_of((x & 0x7f800000u) == 0x7f800000u, (x & 0x7fffffu) == 0);
  }
  static double value(Storage x) {
    const int exponent = static_cast<int>(x >> 23 & 0xffu);
    const std::uint32_t fraction = x & 0x7fffffu;
    return exponent == 0
               ? value_of(x >> 31 != 0, fraction, -149)
               : value_of(x >> 31 != 0, fraction | 0x800000u, exponent - 150);
  }
};
struct Float16 {  // by way of float
  using Storage = std::uint16_t;
  static std::uint32_t wide(Storage x) {
    return float_to_bits(float16_to_float(x));
  }
  static Kind kind(Storage x) { return Float32::kind(wide(x)); }
  static double value(Storage x) { return Float32::value(wide(x)); }
};
struct BFloat16 {
  using Storage = std::uint16_t;
  static std::uint32_t wide(Storage x) { return std::uint32_t{x} << 16; }
  static Kind kind(Storage x) { return Float32::kind(wide(x)); }
  static double value(Storage x) { return Float32::value(wide(x)); }
};
struct Float64 {
  using Storage = std::uint64_t;
  static Kind kind(Storage x) {
    return kind_of((x << 1 >> 53) == 0x7ff, x << 12 == 0);
  }
  static double value(Storage x) {
    double value;
    std::memcpy(&value, &x, sizeof value);
    return value;
  }
};
struct Float8E4M3FN {  // sign, 4 bits of exponent, 3 of mantissa
  using Storage = std::uint8_t;
  static Kind kind(Storage x) {
    return (x & 0x7fu) == 0x7fu ? Kind::nan : Kind::finite;
  }
  static double value(Storage x) {
    const int exponent = x >> 3 & 0xf;
    return exponent == 0 ? value_of(x >= 0x80, x & 0x7u, -9)
                         : value_of(x >= 0x80, (x & 0x7u) | 8u, exponent - 10);
  }
};
struct Float8E5M2 {  // the upper half of a float16
  using Storage = std::uint8_t;
  static Float16::Storage wide(Storage x) {
    return static_cast<Float16::Storage>(x << 8);
  }
  static Kind kind(Storage x) { return Float16::kind(wide(x)); }
  static double value(Storage x) { return Float16::value(wide(x)); }
};

template <class Format>
void scan(const void*, const Tile& tile, Result& result) {
  auto& partial = *static_cast<ScanPartial*>(tile.partial);
  const auto* data =
      static_cast<const typename Format::Storage*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const Kind kind = Format::kind(data[i]);
    if (kind == Kind::finite) {
      const std::int64_t key = order_key(Format::value(data[i]));
      partial.add({0, 0, 1, 0, key, key});
    } else {
      const bool nan = kind == Kind::nan;
      partial.add({nan ? 0u : 1u, nan ? 1u : 0u, 0, tile.first + i, 0, 0});
      result.flag(tile.first + i, 1);
    }
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(scan_float16, scan<Float16>)
SWAMP_DEFINE_KERNEL(scan_bfloat16, scan<BFloat16>)
SWAMP_DEFINE_KERNEL(scan_float32, scan<Float32>)
SWAMP_DEFINE_KERNEL(scan_float64, scan<Float64>)
SWAMP_DEFINE_KERNEL(scan_float8_e4m3fn, scan<Float8E4M3FN>)
SWAMP_DEFINE_KERNEL(scan_float8_e5m2, scan<Float8E5M2>)

}  // namespace swamp::slave::reference
