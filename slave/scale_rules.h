// The rules by which recipes choose a scale from the largest magnitude `amax`
// of a tensor or block. They are float32 arithmetic in the order of the
// originals, whose names they carry: Transformer Engine (te), torchao,
// microxcaling and ModelOpt. `largest` is the largest number of the elements'
// format. An amax is not negative; it may be inf or nan.
#ifndef SWAMP_SLAVE_SCALE_RULES_H_
#define SWAMP_SLAVE_SCALE_RULES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "slave/formats.h"
#include "swamp/float_formats.h"

namespace swamp::slave {

inline constexpr float kFloatMax = std::numeric_limits<float>::max();

// float8_e8m0fnu: the code is the biased exponent of a power of two.
inline constexpr std::uint32_t kE8M0Nan = 0xff;

// e8m0_ceil() rounds up to a power of two; `infinity` is the code of inf.
inline std::uint32_t e8m0_ceil(float x, std::uint32_t infinity) noexcept {
  const std::uint32_t bits = float_to_bits(x) & 0x7fffffffu;
  const std::uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffffu;
  if (exponent == 0xff) return mantissa != 0 ? kE8M0Nan : infinity;
  const std::uint32_t least = exponent == 0 ? 0x400000 : 0;
  return exponent + (mantissa > least && exponent != 0xfe ? 1 : 0);
}

// power_of_two() is 2^exponent, a subnormal number below -126.
inline float power_of_two(int exponent) noexcept {
  if (exponent > 127) return std::numeric_limits<float>::infinity();
  if (exponent >= -126) {
    return float_from_bits(static_cast<std::uint32_t>(exponent + 127) << 23);
  }
  return exponent < -149 ? 0 : float_from_bits(1u << (exponent + 149));
}

// e8m0_value() is the value of a code; e8m0_factor() is its inverse, by which
// the elements are multiplied.
inline float e8m0_value(std::uint32_t code) noexcept {
  return code == kE8M0Nan ? std::numeric_limits<float>::quiet_NaN()
                          : power_of_two(static_cast<int>(code) - 127);
}
inline float e8m0_factor(std::uint32_t code) noexcept {
  return code == kE8M0Nan ? std::numeric_limits<float>::quiet_NaN()
                          : power_of_two(127 - static_cast<int>(code));
}

// e4m3_code() is the float8_e4m3fn nearest to x, which is not negative, at most
// the largest; e4m3_value() is its inverse.
inline std::uint32_t e4m3_code(float x) noexcept {
  return element::Float8E4M3FN::narrow(x) & 0x7fu;
}
inline float e4m3_value(std::uint32_t code) noexcept {
  return element::Float8E4M3FN::widen(static_cast<std::uint8_t>(code));
}

// floor_of_log2() is floor(log2f(x)) of a finite x > 0. The logarithm of a
// number just below 2^n may be rounded to n: it is below n by log2(e) * (1 - x
// / 2^n), and floats just below n are 2^(k-23) apart.
inline int floor_of_log2(float x) noexcept {
  // x = fraction * 2^n with a fraction from 1/2 on; every float is a normal
  // double.
  const auto wide = static_cast<double>(x);
  std::uint64_t bits;
  std::memcpy(&bits, &wide, sizeof bits);
  const int n = static_cast<int>(bits >> 52) - 1022;
  bits = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1022} << 52;
  double fraction;
  std::memcpy(&fraction, &bits, sizeof fraction);
  const int next = n > 0 ? n - 1 : -n;  // the integer part of |log2(x)|
  if (next == 0) return n - 1;
  int k = 0;  // bits of `next`
  for (int rest = next; rest != 0; rest /= 2) ++k;
  const double below = 1.4426950408889634 * (1 - fraction);
  return below < std::ldexp(1.0, k - 1 - 24) ? n : n - 1;
}

// te_scale() is the scale of Float8CurrentScaling, with kFloatMax for
// `if_infinite`, and of Float8BlockScaling, with the largest number of the
// input's format. Its inverse is 1 / scale.
inline float te_scale(float amax, float largest, float if_infinite,
                      bool power_of_2, float eps = 0) noexcept {
  if (amax < eps) amax = eps;
  if (!(amax > 0) || std::isinf(amax)) return 1;
  float scale = largest / amax;
  if (std::isinf(scale)) scale = if_infinite;
  return power_of_2 ? float_from_bits(float_to_bits(scale) & 0xff800000u)
                    : scale;
}

// torchao_scale() returns the scale of torchao.float8, in float64; with
// `power_of_2` rounded down, as in its rowwise recipes.
inline float torchao_scale(float amax, float largest,
                           bool power_of_2 = false) noexcept {
  const double wide = static_cast<double>(amax);
  const double at_least = wide < 1e-12 ? 1e-12 : wide;
  const auto scale =
      static_cast<float>(1 / at_least * static_cast<double>(largest));
  return power_of_2 && scale > 0 ? power_of_two(floor_of_log2(scale)) : scale;
}

// MxRule is how the e8m0 scale of a block of 32 is chosen.
enum class MxRule : std::uint32_t {
  floor,  // torchao: amax's exponent less `largest`'s
  ceil,   // one more if amax is not a power of two
  even,   // amax is first rounded to the mantissa of the elements
  rceil,  // amax / largest, rounded up
  te,     // the same; inf has the code 0xfe instead of nan
  // floor with a logarithm in float32, and a code of nan beyond 2^127.
  microxcaling
};

// Returns the exponent of the largest power of two not above `largest`.
inline int floor_exponent(float largest) noexcept {
  return static_cast<int>(float_to_bits(largest) >> 23 & 0xff) - 127;
}

// microxcaling_exponent() is the exponent of the scale; kNoExponent if the
// block becomes nan.
inline constexpr int kNoExponent = 128;
inline int microxcaling_exponent(float amax, float largest) noexcept {
  if (!std::isfinite(amax)) return kNoExponent;
  const int exponent =
      floor_of_log2(amax == 0 ? 0x1p-126f : amax) - floor_exponent(largest);
  return exponent > 127 ? kNoExponent : std::max(exponent, -127);
}

// mx_code() is the e8m0 code of a block.
inline std::uint32_t mx_code(MxRule rule, float amax, float largest,
                             std::uint32_t mantissa_bits) noexcept {
  switch (rule) {
    case MxRule::te:
      return e8m0_ceil(amax * (1 / largest), 0xfe);
    case MxRule::rceil:
      return e8m0_ceil(amax * (1 / largest), kE8M0Nan);
    case MxRule::microxcaling:
      return static_cast<std::uint32_t>(microxcaling_exponent(amax, largest) +
                                        127);
    default:
      break;
  }
  std::uint32_t bits = float_to_bits(amax);
  if (bits >= 0x7f800000u) return kE8M0Nan;
  if (rule == MxRule::even) bits += 1u << (22 - mantissa_bits);
  int exponent = static_cast<int>(bits >> 23);
  if (exponent == 0xff) return kE8M0Nan;
  if (rule == MxRule::ceil && (bits & 0x7fffffu) != 0) ++exponent;
  return static_cast<std::uint32_t>(
      std::max(exponent - floor_exponent(largest), 0));
}

// Nvfp4Scale is of a block of NVFP4: its scale as float8_e4m3fn, and what the
// elements are multiplied by.
struct Nvfp4Scale {
  std::uint32_t code;
  float factor;
};

// te_nvfp4_tensor_scale() is the factor of a tensor's scales; te_nvfp4_scale()
// is of one block.
inline float te_nvfp4_tensor_scale(float amax) noexcept {
  const float scale = 448.0f * 6.0f / amax;
  if (amax == 0 || scale == 0) return 1;
  return scale < kFloatMax ? scale : kFloatMax;
}
inline Nvfp4Scale te_nvfp4_scale(float amax, float tensor_scale) noexcept {
  const float scale = amax * (tensor_scale * (1.0f / 6.0f));
  const std::uint32_t code = e4m3_code(scale < kFloatMax ? scale : kFloatMax);
  const float factor = 1 / (e4m3_value(code) * (1 / tensor_scale));
  return {code, factor < kFloatMax ? factor : kFloatMax};
}

// torchao_nvfp4_tensor_scale() is the per-tensor scale; torchao_nvfp4_scale()
// is of one block. A tensor scale of 1 is as none at all.
inline float torchao_nvfp4_tensor_scale(float amax) noexcept {
  return amax / (448.0f * 6.0f);
}
inline Nvfp4Scale torchao_nvfp4_scale(float amax, float tensor_scale) noexcept {
  float scale = amax / 6.0f / tensor_scale;
  if (scale < 0x1p-6f) scale = 0x1p-6f;
  if (scale > 448.0f) scale = 448.0f;
  const std::uint32_t code = e4m3_code(scale);
  return {code, 1 / tensor_scale / e4m3_value(code)};
}

// Return ModelOpt's scale of a float8_e4m3fn tensor, and the e8m0 code of a
// block.
inline float modelopt_scale(float amax) noexcept {
  return 1 / (amax <= 0x1p-24f ? 1.0f : amax) * 448.0f;
}
inline std::uint32_t modelopt_mx_code(float amax, float largest) noexcept {
  if (!(amax > 0) || std::isinf(amax)) return 127;
  return std::min<std::uint32_t>(e8m0_ceil(amax / largest, 0xfe), 0xfe);
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_SCALE_RULES_H_
