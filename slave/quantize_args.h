// The arguments of the kernels that convert to and from formats of at most 8
// bits, and the contract of each family.
#ifndef SWAMP_SLAVE_QUANTIZE_ARGS_H_
#define SWAMP_SLAVE_QUANTIZE_ARGS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "slave/kernel_args.h"
#include "slave/scale_rules.h"

namespace swamp::slave {

// quantize: x (in), codes (out, bytes), random (in, a byte of each element;
//   absent: as below). A unit is a byte of codes: one element, or two, the
//   first one in the low half. With v = f32(x * scale), a code is the
//   format's number that `rounding` chooses for v, with the sign of x:
//   nearest_even, nearest_away: the nearest, of two the even one, or that of
//     the larger magnitude
//   stochastic, with a byte r of random bits: with step(y) the distance of
//     the format's numbers from |y| on and t = fma(r / 256, step(v), |v|):
//     floor(t / step(t)) * step(t). r is the upper byte of `weight` of
//     rounding_bits(key, index of the element).
//   Specials::tapered: nearest_away, at the width of the mantissa that the
//     exponent of v has; between 2^-23 and 2^-22: 2^-22.
//   Specials::exponent: nearest_away, up or down, of the numbers without sign;
//     nearest_away between 2^-127 and 2^-126: 2^-126.
//   A number beyond `largest` becomes `overflow`, inf `infinity`, nan `nan` or
//   `negative_nan`. Instead of the codes, `codes` may have their values; a unit
//   is then an element, of any format with a sign. Partial result:
//   QuantizePartial.
enum class CodeForm : std::uint32_t { code, bfloat16, float32 };
struct QuantizeArgs {
  float scale;
  std::uint32_t mantissa_bits;   // 0: of Specials::exponent
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
  std::uint32_t complement;  // not 0: a negative code is the two's complement
  CodeForm form = CodeForm::code;
  // Of values, and of tapered codes: the bits of the largest number, and the
  // values of these codes without and with a sign.
  std::uint32_t largest_bits = 0;
  float overflow_values[2] = {}, infinity_values[2] = {}, nan_values[2] = {};
};
// Returns the bytes of a number of elements.
inline std::size_t form_bytes(const QuantizeArgs& args,
                              std::size_t elements) noexcept {
  return args.form == CodeForm::code
             ? elements / args.elements
             : elements * (args.form == CodeForm::bfloat16 ? 2 : 4);
}
struct QuantizeOperand {
  enum : int { x, codes, random, count };
};

// More than any code.
inline constexpr std::uint32_t kBeyond = 0x100;

// Values of QuantizeArgs::rounding, as swamp::Rounding.
inline constexpr std::uint32_t kNearestEven = 0, kNearestAway = 1,
                               kStochastic = 2, kUp = 3, kDown = 4;

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

// dequantize: x (out), codes (in, bytes), values (constant: float32 of the 256
//   bytes, or of the 16 codes). x = r(values[code] * scale). A unit is as of
//   quantize. `scale` is finite.
struct DequantizeArgs {
  float scale;
  std::uint32_t elements;  // of a unit
  // As of quantize. The values of two kinds of codes are looked up: those that
  // are larger than `largest` without the sign, and `also` (kBeyond: none).
  std::uint32_t mantissa_bits, least_exponent, sign, largest, also, complement;
};
struct DequantizeOperand {
  enum : int { x, codes, values, count };
};

// scaled_value() returns value * scale. A nan value stays as it is, because the
// CPU would choose one of two nan by the order of the operands.
inline float scaled_value(float value, float scale) noexcept {
  return std::isnan(value) ? value : value * scale;
}

// quantize_blocks: x (in), codes and scales along rows (out), codes and scales
//   along columns (out; each pair may be absent), random (in, a byte of each
//   element of x; absent: as of quantize). A unit is a stripe of some rows
//   of a matrix; its last stripe may have fewer. The scale blocks of a row are
//   `block` neighbours, fewer at its end; those of a column too, and its codes
//   are written as a row. A line of an operand is what the stripe has of a row
//   of x, or, along columns, of a row of the transpose. Square blocks have
//   `block` rows and columns; rows and columns have the same codes. A block's
//   scale is chosen by `rule` from its largest magnitude, and its codes are
//   those of f32(x * factor), by slave/scale_rules.h. Of a column that is
//   transformed (`hadamard`), x is first multiplied by the transform below, in
//   groups of 16 rows. Of microxcaling, nearest_even and nearest_away round as
//   the original, which adds 1/2 to the element over the smallest number, in
//   float32: the float32 before 1/2 is rounded up, too.
//   Instead of codes there may be values (QuantizeArgs::form), and no scales: a
//   value is f32(value of the code * stored scale), without the factor of
//   NVFP4's tensor. Those along columns are not transposed: their lines are
//   rows, as x's; square blocks have them along rows only. With the rule
//   `given` the factor of each row is in scales (in), that of each column in
//   column_scales (constant), both float32; blocks are rows and columns. With
//   the rule `amax` there are no codes, and the scales are the largest
//   magnitudes as float32. Partial result of values and of `amax`:
//   ValuePartial.
enum class BlockRule : std::uint32_t {
  floor,  // up to microxcaling as MxRule
  ceil,
  even,
  rceil,
  te_mx,
  microxcaling,
  te_nvfp4,
  torchao_nvfp4,
  te,  // float32; the stored scale is the inverse of the factor
  torchao,
  given,
  amax
};
struct BlockArgs {
  QuantizeArgs code;  // its scale is not used, its key is for rows
  RoundingKey column_key;
  std::uint64_t rows;     // of all units of a tensor
  std::uint64_t columns;  // of a stripe
  // The index of an element, which chooses its random bits, is row * index_step
  // + column + first_index.
  std::uint64_t index_step, first_index;
  std::uint64_t block;  // a power of two from 16 to kMaxBlock; or, without
                        // columns and not square, any that is not less than
                        // `columns`
  BlockRule rule;
  std::uint32_t stripe_rows;  // at most kMaxBlock; 1, of dense rows only, or
                              // whole blocks
  std::uint32_t scale_bytes;  // 1, or 4
  float largest;              // number of the format
  float tensor_scale, column_tensor_scale;  // NVFP4
  float if_infinite;                        // of te_scale()
  std::uint32_t power_of_2;                 // 0 or 1: of float32 scales
  std::uint32_t skips_nan;  // 0 or 1: nan does not count for a block's amax
  std::uint32_t square;     // 0 or 1
  std::uint32_t repeats;    // 0 or 1: each row has the scales of its blocks;
                            // if not, square blocks have one
  std::uint32_t hadamard;   // 0 or 1
  std::uint32_t divides;    // 0 or 1: values are multiplied by f32(1 / factor)
                            // of the rule `given`
  std::uint32_t reserved;
};
// ValuePartial is what was seen of the elements of values and of `amax`.
struct ValuePartial {
  std::uint64_t saturated;  // beyond the largest number, inf included
  std::uint64_t flushed;    // became 0, but were not
  // Bits of the largest magnitudes, of columns after the transform. A nan is
  // the largest if the rule does not skip it.
  std::uint32_t amax, column_amax;
  std::uint32_t has_nan;  // 0 or 1
  std::uint32_t wide;     // not 0: bfloat16 does not have all values

  // One pattern of nan, whatever the payloads.
  void canonicalize() noexcept {
    if (amax > 0x7f800000u) amax = 0x7fc00000u;
    if (column_amax > 0x7f800000u) column_amax = 0x7fc00000u;
  }
  void join(const ValuePartial& other) noexcept {
    saturated += other.saturated;
    flushed += other.flushed;
    amax = std::max(amax, other.amax);
    column_amax = std::max(column_amax, other.column_amax);
    has_nan |= other.has_nan;
    wide |= other.wide;
  }
};
struct BlockOperand {
  enum : int { x, codes, scales, column_codes, column_scales, random, count };
};
inline constexpr std::size_t kMaxBlock = 128;
// The most columns that are computed at once.
inline constexpr std::size_t kBlockWidth = 128;

// microxcaling_raised_bits() returns the bits of the float32 before half of the
// smallest number.
inline std::uint32_t microxcaling_raised_bits(const QuantizeArgs& code) {
  return ((code.least_exponent - code.mantissa_bits - 1) << 23) - 1;
}

// BlockScale is a scale as it is stored: a code, or the bits of a float32.
struct BlockScale {
  std::uint32_t bits;
  float factor;
};
inline BlockScale block_scale(const BlockArgs& args, float tensor_scale,
                              float amax) noexcept {
  switch (args.rule) {
    case BlockRule::given:
    case BlockRule::amax:
      return {float_to_bits(amax), amax};
    case BlockRule::te_nvfp4:
    case BlockRule::torchao_nvfp4: {
      const Nvfp4Scale scale = args.rule == BlockRule::te_nvfp4
                                   ? te_nvfp4_scale(amax, tensor_scale)
                                   : torchao_nvfp4_scale(amax, tensor_scale);
      return {scale.code, scale.factor};
    }
    case BlockRule::te:
    case BlockRule::torchao: {
      const float scale =
          args.rule == BlockRule::te
              ? te_scale(amax, args.largest, args.if_infinite,
                         args.power_of_2 != 0)
              : torchao_scale(amax, args.largest, args.power_of_2 != 0);
      // One pattern of nan, whatever the payload of the amax.
      return {std::isnan(scale) ? 0x7fc00000u : float_to_bits(1 / scale),
              scale};
    }
    default: {
      const std::uint32_t code = mx_code(static_cast<MxRule>(args.rule), amax,
                                         args.largest, args.code.mantissa_bits);
      return {code, e8m0_factor(code)};
    }
  }
}

// amax: x (in). A unit is an element. Partial result: AmaxPartial.
struct AmaxArgs {};
struct AmaxPartial {
  std::uint32_t bits;      // of the largest magnitude; nan does not count
  std::uint32_t with_nan;  // the same; nan is larger than inf
  void join(const AmaxPartial& other) noexcept {
    bits = std::max(bits, other.bits);
    with_nan = std::max(with_nan, other.with_nan);
  }
};

// hadamard: x (in), out (out, may be x). A unit is kHadamard neighbours:
//     out_j = r(1/4 sum_i sign_i x_i h_ij),
//   with Sylvester's matrix h and the signs of Transformer Engine. The sum is a
//   butterfly in double: neighbours first. It is rounded to float32, then to
//   the format of x. A nan becomes the positive quiet one.
struct HadamardArgs {};
struct HadamardOperand {
  enum : int { x, out, count };
};
inline constexpr std::size_t kHadamard = 16;
inline constexpr std::uint32_t kHadamardMinus = 0xd7e8;  // bit i: sign_i is -
// hadamard_transform() transforms `width` columns of 16 rows in place.
inline void hadamard_transform(double* x, std::size_t width) noexcept {
  for (std::size_t i = 0; i < kHadamard; ++i) {
    if ((kHadamardMinus >> i & 1) == 0) continue;
    for (std::size_t j = 0; j < width; ++j) x[i * width + j] *= -1;
  }
  for (std::size_t step = 1; step < kHadamard; step *= 2) {
    for (std::size_t i = 0; i < kHadamard; ++i) {
      if ((i & step) != 0) continue;
      double* const a = x + i * width;
      double* const b = a + step * width;
      for (std::size_t j = 0; j < width; ++j) {
        const double sum = a[j] + b[j];
        b[j] = a[j] - b[j];
        a[j] = sum;
      }
    }
  }
  for (std::size_t i = 0; i < kHadamard * width; ++i) x[i] *= 0.25;
  // The sign of inf - inf, and which of two nan a sum is, depend on the CPU and
  // on the order of the operands, which the compiler chooses. The first row is
  // the sum of all, inf or nan if one of them is.
  bool finite = true;
  for (std::size_t j = 0; j < width; ++j) finite &= std::isfinite(x[j]);
  if (finite) return;
  for (std::size_t i = 0; i < kHadamard * width; ++i) {
    if (std::isnan(x[i])) x[i] = std::numeric_limits<double>::quiet_NaN();
  }
}

// The formats of stored scales.
enum class ScaleKind : std::uint32_t { e8m0, e4m3, float32 };

// dequantize_blocks: x (out), codes (in), scales (in), values (constant, as of
//   dequantize). A unit is a row of `columns` elements, whose blocks are
//   `block` neighbours. x = r(scaled_value(values[code], s)), with s the value
//   of the scale, of float8_e4m3fn f32(f32(value * amax) * f32(1 / 2688)) if
//   `te`, else f32(value * amax).
struct DequantizeBlockArgs {
  DequantizeArgs code;  // its scale is not used
  float amax;
  std::uint32_t te;
  ScaleKind scales;
  std::uint64_t columns, block;
};
struct DequantizeBlockOperand {
  enum : int { x, codes, scales, values, count };
};
inline float dequantize_factor(const DequantizeBlockArgs& args,
                               std::uint32_t bits) noexcept {
  switch (args.scales) {
    case ScaleKind::e8m0:
      return e8m0_value(bits);
    case ScaleKind::e4m3: {
      const float value =
          (bits & 0x80) != 0 ? -e4m3_value(bits & 0x7f) : e4m3_value(bits);
      return args.te != 0 ? value * args.amax * (1.0f / 2688.0f)
                          : value * args.amax;
    }
    default:
      return float_from_bits(bits);
  }
}

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_QUANTIZE_ARGS_H_
