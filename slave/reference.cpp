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
  const auto* in =
      static_cast<const typename In::Element*>(tile.operands[CastOperand::in]);
  auto* out =
      static_cast<typename Out::Element*>(tile.operands[CastOperand::out]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    float value = In::widen(in[i]);
    if (divides(divisor)) value = In::widen(In::narrow(value / divisor));
    out[i] = Out::narrow(value);
  }
}

template <class In>
void accumulate(const void* args, const Tile& tile, Result&) {
  const float divisor = static_cast<const AccumulateArgs*>(args)->divisor;
  const auto* in = static_cast<const typename In::Element*>(
      tile.operands[AccumulateOperand::in]);
  auto* sum = static_cast<float*>(tile.operands[AccumulateOperand::sum]);
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
  const auto* in =
      static_cast<const typename In::Element*>(tile.operands[LerpOperand::in]);
  auto* out =
      static_cast<typename Out::Element*>(tile.operands[LerpOperand::out]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const float to = In::widen(in[i]);
    const float from = Out::widen(out[i]);
    out[i] = Out::narrow(std::fma(numbers.coefficient, to - from,
                                  numbers.from_in != 0 ? to : from));
  }
}

}  // namespace

SWAMP_KERNELS(unscale, kGradients, unscale<A>)
SWAMP_KERNELS(check, kGradients, check<A>)
SWAMP_KERNELS(norm, kGradients, norm<A>)
SWAMP_KERNELS(scan, kGradients, scan<A>)
SWAMP_KERNELS(count_zeros, kUpTo32, count_zeros<A>)
SWAMP_KERNELS(cast, kCasts, cast<A, B>)
SWAMP_KERNELS(accumulate, kUpTo32, accumulate<A>)
SWAMP_KERNELS(lerp, kSameOrWide, lerp<A, B>)
SWAMP_KERNELS(zero, kUpTo32, zero<A>)

}  // namespace swamp::slave::reference
