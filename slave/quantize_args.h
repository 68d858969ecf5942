// The arguments of the kernels that convert to and from formats of at most 8
// bits, and the contract of each family.
#ifndef SWAMP_SLAVE_QUANTIZE_ARGS_H_
#define SWAMP_SLAVE_QUANTIZE_ARGS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "slave/kernel_args.h"

namespace swamp::slave {

// quantize: x (in), codes (out, octets), random (in, an octet of each element;
//   absent: as below). A unit is an octet of codes: one element, or two, the
//   first of which is in the low half. With v = f32(x * scale), a code is the
//   format's number that `rounding` chooses for v, with the sign of x:
//   nearest_even, nearest_away: the nearest, of two the even one, or that of
//     the larger magnitude
//   stochastic, with an octet r of random bits: with step(y) the distance of
//     the format's numbers from |y| on and t = fma(r / 256, step(v), |v|):
//     floor(t / step(t)) * step(t). r is the upper octet of `weight` of
//     rounding_bits(key, index of the element).
//   Specials::tapered: nearest_away, at the width of the mantissa that the
//     exponent of v has; between 2^-23 and 2^-22: 2^-22.
//   A number beyond `largest` becomes `overflow`, inf `infinity`, nan `nan` or
//   `negative_nan`. Partial result: QuantizePartial.
struct QuantizeArgs {
  float scale;
  std::uint32_t mantissa_bits;
  std::uint32_t least_exponent;  // of a normal number, biased as float32's
  std::uint32_t sign;            // the position of the bit
  // Codes without the sign:
  std::uint32_t largest, overflow, infinity;
  // Codes with the sign; negative_zero may be +0.
  std::uint32_t nan, negative_nan, negative_zero;
  std::uint32_t rounding;  // a Rounding
  std::uint32_t tapered;   // of Specials::tapered; the others are not used
  std::uint32_t elements;  // of a unit
  RoundingKey key;
};

// Values of QuantizeArgs::rounding, as swamp::Rounding.
inline constexpr std::uint32_t kNearestEven = 0, kNearestAway = 1,
                               kStochastic = 2;

// QuantizePartial is what was seen of the elements; those that are nan count
// for nan_count only.
struct QuantizePartial {
  std::uint64_t saturated;  // beyond the largest number, inf included
  std::uint64_t flushed;    // became 0, but were not
  std::uint64_t nan_count;
  std::uint32_t amax;  // bits of the largest magnitude of x
  std::uint32_t reserved;

  void join(const QuantizePartial& other) noexcept {
    saturated += other.saturated;
    flushed += other.flushed;
    nan_count += other.nan_count;
    amax = std::max(amax, other.amax);
  }
};

// dequantize: x (out), codes (in, octets), values (constant: float32 of the 256
//   octets, or of the 16 codes). x = r(values[code] * scale). A unit is as of
//   quantize.
struct DequantizeArgs {
  float scale;
  std::uint32_t elements;  // of a unit
  // As of quantize. Only codes that are larger than `largest` without the sign
  // are looked up, and that of -0 if it is nan.
  std::uint32_t mantissa_bits, least_exponent, sign, largest;
  std::uint32_t nan_zero;  // not 0: it is
};

// tapered_code() is the code of a float's magnitude as HiFloat8, kBeyond if it
// is too large; of inf and nan anything.
inline constexpr std::uint32_t kBeyond = 0x100;
inline std::uint32_t tapered_code(std::uint32_t magnitude) noexcept {
  const auto width = [](int exponent) {
    const int size = exponent < 0 ? -exponent : exponent;
    return size <= 3 ? 3 : size <= 7 ? 2 : size <= 15 ? 1 : 0;
  };
  int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < -23) return 0;
  if (exponent == -23) return 1;
  int cut = 23 - width(exponent);
  magnitude += 1u << (cut - 1);
  exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent > 15) return kBeyond;
  if (exponent < -15) return static_cast<std::uint32_t>(exponent + 23);
  const int bits = width(exponent);
  const std::uint32_t mantissa = magnitude >> (23 - bits) & ((1u << bits) - 1);
  const std::uint32_t size =
      static_cast<std::uint32_t>(exponent < 0 ? -exponent : exponent);
  const std::uint32_t negative = exponent < 0 ? 1 : 0;
  std::uint32_t code;
  if (size == 0) {
    code = 0x08 | mantissa;
  } else if (size == 1) {
    code = 0x10 | negative << 3 | mantissa;
  } else if (size <= 3) {
    code = 0x20 | negative << 4 | (size & 1) << 3 | mantissa;
  } else if (size <= 7) {
    code = 0x40 | negative << 4 | (size & 3) << 2 | mantissa;
  } else {
    code = 0x60 | negative << 4 | (size & 7) << 1 | mantissa;
  }
  return code == 0x6f ? kBeyond : code;
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_QUANTIZE_ARGS_H_
