#include <cmath>
#include <cstdint>
#include <cstring>

#include "slave/kernel_args.h"
#include "slave/reference.h"
#include "swamp/float_formats.h"

namespace swamp::slave::reference {
namespace {

// value_of() is the value of a finite element, by its parts, so that no float
// environment can change it.
template <class Format>
double value_of(typename Format::Bits bits) {
  constexpr FloatFormat kFormat = Format::kFormat;
  if constexpr (sizeof bits == sizeof(double)) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  } else {
    const std::uint64_t magnitude = bits & (kFormat.sign() - 1);
    const auto exponent = static_cast<int>(magnitude >> kFormat.mantissa_bits);
    const std::uint64_t fraction = magnitude & kFormat.mantissa();
    const std::uint64_t mantissa =
        exponent == 0 ? fraction : fraction | (kFormat.mantissa() + 1);
    const int power = (exponent == 0 ? 1 : exponent) - kFormat.bias() -
                      static_cast<int>(kFormat.mantissa_bits);
    const double value = std::ldexp(static_cast<double>(mantissa), power);
    return (bits & kFormat.sign()) != 0 ? -value : value;
  }
}

template <class Format>
void scan(const void*, const Tile& tile, Result& result) {
  auto& partial = *static_cast<ScanPartial*>(tile.partial);
  const auto* data =
      static_cast<const typename Format::Bits*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (!Format::kFormat.is_nonfinite(data[i])) {
      const std::int64_t key = order_key(value_of<Format>(data[i]));
      partial.add({0, 0, 1, 0, key, key});
    } else {
      const bool nan = Format::kFormat.is_nan(data[i]);
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
