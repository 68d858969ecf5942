/// @file
/// Conversions to and from the formats of at most 8 bits of mixed-precision
/// recipes: float8_e4m3fn, float8_e5m2, their fnuz forms, float6, float4 and
/// HiFloat8. One pass multiplies by the scale, rounds, and finds what the
/// recipe needs to choose the next scale. The rounding is exact and the same on
/// every machine (slave/quantize_args.h), if the calling thread rounds to
/// nearest.
///
/// Common to all functions: a Machine of null is the default machine. Data must
/// be aligned to its element, and must not overlap. Everything is checked
/// before the first write. Any thread may call, also several at once on one
/// machine. Error is thrown for bad arguments, and with SWAMP_UNSUPPORTED for a
/// dtype, or a policy that has no rule for it.
#ifndef SWAMP_FLOAT8_H_
#define SWAMP_FLOAT8_H_

#include <cstddef>
#include <cstdint>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// Rounding chooses one of the two neighbours of a number.
enum class Rounding : std::uint8_t {
  nearest_even,  ///< of a tie, the one with an even code
  nearest_away,  ///< of a tie, the larger magnitude; HiFloat8 has only this
  /// Up in magnitude with a probability of what is cut off, in steps of 1/256
  /// (Transformer Engine's rule for float4).
  stochastic
};

/// CastPolicy is what becomes of nan, of inf and of numbers beyond the largest
/// one. A format without inf and nan always takes its largest number.
enum class CastPolicy : std::uint8_t {
  /// The largest number; inf too, except in fnuz (nan) and HiFloat8 (inf). A
  /// nan keeps its sign if the format can.
  saturate,
  /// Such a number becomes inf, or nan in a format without inf. A nan keeps its
  /// sign.
  overflow,
  /// CUDA's SATFINITE, as Transformer Engine: saturate, but nan has no sign.
  cuda_saturate,
  cuda,  ///< CUDA's NOSAT: overflow, but nan has no sign
  /// PyTorch 2.13's Tensor.to(): saturate for float8_e4m3fn, else overflow. Not
  /// for float6, float4 and HiFloat8.
  torch,
  /// ml_dtypes 0.6's astype(): overflow, with other patterns of nan. Not for
  /// HiFloat8.
  ml_dtypes
};

/// QuantizeOptions is how quantize() rounds.
struct QuantizeOptions {
  float scale = 1;  ///< factor of x; finite and larger than 0
  Rounding rounding = Rounding::nearest_even;  ///< which neighbour
  CastPolicy policy = CastPolicy::saturate;    ///< at the ends of the range
  /// Of the random bits of Rounding::stochastic; they also depend on the index
  /// of an element, and on nothing else.
  std::uint64_t seed = 0;
  /// If not null, the random bits: an octet for each element of x.
  const std::uint8_t* random = nullptr;
};

/// QuantizeReport is what quantize() has seen.
struct QuantizeReport {
  float amax = 0;  ///< the largest |x|; nan does not count, inf does
  std::uint64_t saturated = 0;  ///< beyond the largest number, inf included
  std::uint64_t flushed = 0;    ///< became 0, but were not
  std::uint64_t nan_count = 0;  ///< were nan
};

/// quantize sets codes to round(float32(x) * scale).
///
/// @param x float16, bfloat16 or float32
/// @param[out] codes of a format of at most 8 bits, with as many elements; of
///   float4_e2m1fn_x2 an element is an octet, with two elements of x
/// @param options scale, rounding and policy
/// @param machine where to run; null: the default machine
/// @return the largest magnitude, and how many elements left the range
SWAMP_API QuantizeReport quantize(const Tensor& x, const Tensor& codes,
                                  const QuantizeOptions& options = {},
                                  Machine* machine = nullptr);

/// dequantize sets x to round(float32(code) * scale); the inverse of a scale is
/// usually passed.
///
/// @param codes as quantize() returns them
/// @param[out] x float16, bfloat16 or float32
/// @param scale finite
/// @param machine where to run; null: the default machine
SWAMP_API void dequantize(const Tensor& codes, const Tensor& x, float scale = 1,
                          Machine* machine = nullptr);

/// code_to_float returns the value of a code of a format of at most 8 bits; of
/// float4_e2m1fn_x2 that of the low half.
SWAMP_API float code_to_float(ScalarType format, std::uint8_t code);

}  // namespace swamp

#endif  // SWAMP_FLOAT8_H_
