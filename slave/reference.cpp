// The scalar references of the element-wise kernels; those of the optimizers
// are in step_reference.cpp.
#include "slave/reference.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "slave/kernel_args.h"
#include "swamp/float_formats.h"

namespace swamp::slave::reference {
namespace {

template <class Format>
void check(const void*, const Tile& tile, Result& result) {
  const auto* data =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (!std::isfinite(Format::widen(data[i]))) result.flag(tile.first + i, 1);
  }
}

template <class Format>
void unscale(const void* args, const Tile& tile, Result& result) {
  check<Format>(args, tile, result);
  const float inv_scale = static_cast<const UnscaleArgs*>(args)->inv_scale;
  auto* data = static_cast<typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    data[i] = Format::narrow(Format::widen(data[i]) * inv_scale);
  }
}

template <class Format>
void norm(const void* args, const Tile& tile, Result& result) {
  auto& partial = *static_cast<NormPartial*>(tile.partial);
  const float inv_scale = static_cast<const NormArgs*>(args)->inv_scale;
  const auto* data =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const auto g = Format::widen(data[i]);
    if (!std::isfinite(g)) result.flag(tile.first + i, 1);
    // Rounded to float, except for float64.
    const decltype(g * inv_scale) unscaled = g * inv_scale;
    const double value = unscaled;
    partial.lanes[(tile.first + i) % NormPartial::kLanes] += value * value;
  }
}

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

// A zero has no bit set but the sign. Comparing floats would make a subnormal 0
// under denormals-are-zero.
template <class Format>
void count_zeros(const void*, const Tile& tile, Result& result) {
  const auto* data =
      static_cast<const typename Format::Bits*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if ((data[i] & ~Format::kFormat.sign()) == 0)
      result.flag(tile.first + i, 1);
  }
}

// divides() compares bits: clang assumes x / 1 == x and would always divide,
// which differs under flush-to-zero.
bool divides(float divisor) {
  return float_to_bits(divisor) != float_to_bits(1.0f);
}

template <class In, class Out>
void cast(const void* args, const Tile& tile, Result&) {
  const float divisor = static_cast<const CastArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Element*>(tile.operands[0]);
  auto* out = static_cast<typename Out::Element*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float value = In::widen(in[i]);
    if (divides(divisor)) value = In::widen(In::narrow(value / divisor));
    out[i] = Out::narrow(value);
  }
}

template <class In>
void accumulate(const void* args, const Tile& tile, Result&) {
  const float divisor = static_cast<const AccumulateArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Element*>(tile.operands[0]);
  auto* sum = static_cast<float*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    sum[i] += In::widen(in[i]);
    if (divides(divisor)) sum[i] /= divisor;
  }
}

template <class Out>
void zero(const void*, const Tile& tile, Result&) {
  std::memset(tile.operands[0], 0, tile.count * sizeof(typename Out::Element));
}

template <class In, class Out>
void lerp(const void* args, const Tile& tile, Result&) {
  const auto& numbers = *static_cast<const LerpArgs*>(args);
  const auto* in = static_cast<const typename In::Element*>(tile.operands[0]);
  auto* out = static_cast<typename Out::Element*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const float to = In::widen(in[i]);
    const float from = Out::widen(out[i]);
    out[i] = Out::narrow(std::fma(numbers.coefficient, to - from,
                                  numbers.from_in != 0 ? to : from));
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(unscale_float16, unscale<Float16>)
SWAMP_DEFINE_KERNEL(unscale_bfloat16, unscale<BFloat16>)
SWAMP_DEFINE_KERNEL(unscale_float32, unscale<Float32>)
SWAMP_DEFINE_KERNEL(unscale_float64, unscale<Float64>)
SWAMP_DEFINE_KERNEL(check_float16, check<Float16>)
SWAMP_DEFINE_KERNEL(check_bfloat16, check<BFloat16>)
SWAMP_DEFINE_KERNEL(check_float32, check<Float32>)
SWAMP_DEFINE_KERNEL(check_float64, check<Float64>)
SWAMP_DEFINE_KERNEL(norm_float16, norm<Float16>)
SWAMP_DEFINE_KERNEL(norm_bfloat16, norm<BFloat16>)
SWAMP_DEFINE_KERNEL(norm_float32, norm<Float32>)
SWAMP_DEFINE_KERNEL(norm_float64, norm<Float64>)
SWAMP_DEFINE_KERNEL(scan_float16, scan<Float16>)
SWAMP_DEFINE_KERNEL(scan_bfloat16, scan<BFloat16>)
SWAMP_DEFINE_KERNEL(scan_float32, scan<Float32>)
SWAMP_DEFINE_KERNEL(scan_float64, scan<Float64>)
SWAMP_DEFINE_KERNEL(scan_float8_e4m3fn, scan<Float8E4M3FN>)
SWAMP_DEFINE_KERNEL(scan_float8_e5m2, scan<Float8E5M2>)
SWAMP_DEFINE_KERNEL(count_zeros_float16, count_zeros<Float16>)
SWAMP_DEFINE_KERNEL(count_zeros_bfloat16, count_zeros<BFloat16>)
SWAMP_DEFINE_KERNEL(count_zeros_float32, count_zeros<Float32>)
SWAMP_DEFINE_KERNEL(cast_float16_float32, cast<Float16, Float32>)
SWAMP_DEFINE_KERNEL(cast_bfloat16_float32, cast<BFloat16, Float32>)
SWAMP_DEFINE_KERNEL(cast_float32_float32, cast<Float32, Float32>)
SWAMP_DEFINE_KERNEL(cast_float32_float16, cast<Float32, Float16>)
SWAMP_DEFINE_KERNEL(cast_float32_bfloat16, cast<Float32, BFloat16>)
SWAMP_DEFINE_KERNEL(accumulate_float16, accumulate<Float16>)
SWAMP_DEFINE_KERNEL(accumulate_bfloat16, accumulate<BFloat16>)
SWAMP_DEFINE_KERNEL(accumulate_float32, accumulate<Float32>)
SWAMP_DEFINE_KERNEL(lerp_float16_float16, lerp<Float16, Float16>)
SWAMP_DEFINE_KERNEL(lerp_float16_float32, lerp<Float16, Float32>)
SWAMP_DEFINE_KERNEL(lerp_bfloat16_bfloat16, lerp<BFloat16, BFloat16>)
SWAMP_DEFINE_KERNEL(lerp_bfloat16_float32, lerp<BFloat16, Float32>)
SWAMP_DEFINE_KERNEL(lerp_float32_float32, lerp<Float32, Float32>)
SWAMP_DEFINE_KERNEL(zero_float16, zero<Float16>)
SWAMP_DEFINE_KERNEL(zero_bfloat16, zero<BFloat16>)
SWAMP_DEFINE_KERNEL(zero_float32, zero<Float32>)

}  // namespace swamp::slave::reference
