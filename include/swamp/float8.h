/// @file
/// Conversions to and from the formats of at most 8 bits of mixed-precision
/// recipes: float8_e4m3fn, float8_e5m2, their fnuz forms, float6, float4,
/// HiFloat8, MXINT8 and float8_e8m0fnu. One pass multiplies by the scale,
/// rounds, and finds what the recipe needs to choose the next scale. The
/// rounding is exact and the same on every machine (slave/quantize_args.h), if
/// the calling thread rounds to nearest.
///
/// Common to all functions: a Machine of null is the default machine. Data must
/// be aligned to its element, and must not overlap. Everything is checked
/// before the first write. Any thread may call, also several at once on one
/// machine. Error is thrown for bad arguments, and with SWAMP_UNSUPPORTED for a
/// dtype, or a policy that has no rule for it, and if the machine's LDM is too
/// small.
#ifndef SWAMP_FLOAT8_H_
#define SWAMP_FLOAT8_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/rows.h"
#include "swamp/tensor.h"

namespace swamp {

/// Rounding chooses one of the two neighbours of a number.
enum class Rounding : std::uint8_t {
  nearest_even,  ///< of a tie, the one with an even code
  /// Of a tie, the larger magnitude. HiFloat8 has only this; in float8_e8m0fnu
  /// any number between 2^-127 and 2^-126 becomes 2^-126, as in PyTorch.
  nearest_away,
  /// Up in magnitude with the probability of the cut-off part, in steps of
  /// 1/256 (Transformer Engine's rule for float4).
  stochastic,
  up,   ///< the larger magnitude; float8_e8m0fnu only
  down  ///< the smaller magnitude; float8_e8m0fnu only
};

/// CastPolicy is what becomes of nan, of inf and of numbers beyond the largest
/// one. A format without inf and nan always takes its largest number.
enum class CastPolicy : std::uint8_t {
  /// The largest number; inf too, except in fnuz (nan) and HiFloat8 (inf). A
  /// nan keeps its sign if the format can; in MXINT8 it becomes 0.
  saturate,
  /// Such a number becomes inf, or nan in a format without inf. A nan keeps its
  /// sign.
  overflow,
  /// CUDA's SATFINITE, as Transformer Engine: saturate, but nan has no sign. An
  /// H100 gave the same codes of all 16-bit patterns and 2.6 million float32 in
  /// five formats (CUDA 13.0), and with `cuda` in the two of float8.
  cuda_saturate,
  cuda,  ///< CUDA's NOSAT: overflow, but nan has no sign
  /// PyTorch 2.13's Tensor.to(): saturate for float8_e4m3fn, else overflow. Not
  /// for float6, float4, HiFloat8 and MXINT8.
  torch,
  /// ml_dtypes 0.6's astype(): overflow, with other patterns of nan. Not for
  /// HiFloat8, MXINT8 and float8_e8m0fnu.
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
  /// If not null, the random bits: a byte for each element of x.
  const std::uint8_t* random = nullptr;
};

/// QuantizeReport is what quantize() has seen.
struct QuantizeReport {
  float amax = 0;  ///< the largest |x|; nan does not count, inf does
  std::uint64_t saturated = 0;  ///< beyond the largest number, inf included
  std::uint64_t flushed = 0;    ///< became 0, but were not
  std::uint64_t nan_count = 0;  ///< were nan
};

/// quantize sets codes to round(float32(x) * scale); of float8_e8m0fnu, which
/// has neither sign nor 0, its magnitude is rounded.
///
/// @param x float16, bfloat16 or float32
/// @param[out] codes of a format of at most 8 bits, with as many elements; of
///   float4_e2m1fn_x2 an element is a byte, with two elements of x
/// @param options scale, rounding and policy
/// @param machine where to run; null: the default machine
/// @return the largest magnitude, and how many elements left the range
SWAMP_API QuantizeReport quantize(const Tensor& x, const Tensor& codes,
                                  const QuantizeOptions& options = {},
                                  Machine* machine = nullptr);

/// quantized_values sets values to those of the codes that quantize() makes, of
/// any format with a sign, in the same pass. They are not divided by the scale,
/// so that bfloat16 has all of them.
///
/// @param x float16, bfloat16 or float32
/// @param format of the codes
/// @param[out] values bfloat16 or float32, with as many elements as x
/// @param options as for quantize()
/// @param machine where to run; null: the default machine
/// @return as quantize()
SWAMP_API QuantizeReport quantized_values(const Tensor& x, ScalarType format,
                                          const Tensor& values,
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

/// code_to_float returns the value of a code of a format of at most 8 bits; for
/// float4_e2m1fn_x2 the value of the low half.
SWAMP_API float code_to_float(ScalarType format, std::uint8_t code);

/// amax returns the largest |x|, 0 without elements.
///
/// @param x float16, bfloat16 or float32
/// @param skip_nan nan does not count, as in Transformer Engine; if not, the
///   result is nan if x has one, as in PyTorch
/// @param machine where to run; null: the default machine
SWAMP_API float amax(const Tensor& x, bool skip_nan = true,
                     Machine* machine = nullptr);

/// BlockScaling is how the scale of a block of elements is chosen, with the
/// arithmetic of the original, and the dtype that it is stored as
/// (slave/scale_rules.h). Blocks have 32 elements as float8_e8m0fnu, 16 as
/// float8_e4m3fn, 128 (te_block) or all of a row (torchao) as float32, if
/// BlockOptions::block is 0.
enum class BlockScaling : std::uint8_t {
  // float8_e8m0fnu
  mx_floor,  ///< torchao's ScaleCalculationMode.FLOOR (OCP), for MX formats
  mx_ceil,   ///< CEIL
  mx_even,   ///< EVEN
  mx_rceil,  ///< RCEIL
  te_mxfp8,  ///< Transformer Engine's MXFP8BlockScaling: nan does not count
  /// microsoft/microxcaling; with nearest_even and nearest_away, the float32
  /// just below half of the smallest number is also rounded up
  microxcaling,
  // float8_e4m3fn, with a factor of the tensor: float4_e2m1fn_x2 only
  te_nvfp4,       ///< Transformer Engine's NVFP4BlockScaling
  torchao_nvfp4,  ///< torchao's NVFP4; its form without a scale of the tensor
                  ///< has an amax of 2688
  // float32: the inverse of the factor
  te_block,                  ///< Float8BlockScaling with float32 scales
  te_block_power_of_2,       ///< Float8BlockScaling, its default
  torchao_float8,            ///< torchao.float8
  torchao_float8_power_of_2  ///< its rowwise recipes
};

/// The scales of a BlockScaling.
struct BlockScales {
  ScalarType dtype;   ///< of a scale
  std::size_t block;  ///< elements by default; 0: those of a row
};

/// block_scales() returns the scales of a BlockScaling.
constexpr BlockScales block_scales(BlockScaling scaling) noexcept {
  if (scaling <= BlockScaling::microxcaling) return {kFloat8E8M0FNU, 32};
  if (scaling <= BlockScaling::torchao_nvfp4) return {kFloat8E4M3FN, 16};
  const bool is_square = scaling <= BlockScaling::te_block_power_of_2;
  return {kFloat32, is_square ? std::size_t{128} : 0};
}

/// BlockOptions is how quantize_blocks() chooses scales and rounds.
struct BlockOptions {
  BlockScaling scaling = BlockScaling::te_mxfp8;  ///< the rule
  /// Elements of a block: 16, 32, 64 or 128; along rows also the number of
  /// columns. 0: as BlockScaling says.
  std::size_t block = 0;
  /// Blocks have as many rows as columns. float32 scales are then one for each
  /// block; those of 8 bits are repeated in each row of a block, as Transformer
  /// Engine stores them.
  bool square = false;
  /// Of NVFP4, which needs it: the largest magnitude of the tensor, as amax()
  /// returns it.
  float tensor_amax = std::numeric_limits<float>::quiet_NaN();
  Rounding rounding = Rounding::nearest_even;  ///< which neighbour
  CastPolicy policy = CastPolicy::saturate;    ///< at the ends of the range
  /// The columns are first multiplied by the random Hadamard transform, as
  /// hadamard_transform() does.
  bool hadamard = false;
  /// Of Rounding::stochastic. Rows and columns get different bits; square
  /// blocks the same.
  std::uint64_t seed = 0;
  /// If not null, the random bits: a byte for each element of x.
  const std::uint8_t* random = nullptr;
  /// Of NVFP4: tensor_amax of the columns, if theirs is another one.
  float column_amax = std::numeric_limits<float>::quiet_NaN();
  /// Of quantized_values(): if not null, the factors of the rows and of the
  /// columns of x, instead of scales of blocks; any finite numbers above 0.
  const float* row_factors = nullptr;
  const float* column_factors = nullptr;  ///< the same of columns
  /// Whether values are multiplied by float32(1 / factor) of a given factor. If
  /// not, that is applied to the sums of their products.
  bool divide = false;
};

/// BlockCodes is the codes of a matrix and their scales, row after row.
struct BlockCodes {
  Tensor codes;   ///< of a format of at most 8 bits
  Tensor scales;  ///< of the dtype of BlockScaling
};

/// quantize_blocks sets `rows` to the codes of x, in which the elements of a
/// block, neighbours in a row, share a scale; and `columns` to the codes of the
/// transpose of x. Either may be null. Both are made from one pass over x. The
/// last block of a row may have fewer elements.
///
/// @param x float16, bfloat16 or float32
/// @param[out] rows codes of [rows, columns]; scales of [rows, columns / block
///   rounded up], if square and float32 [rows / block, columns / block]
/// @param[out] columns codes of [columns, rows], and their scales
/// @param options the rule; float4 needs an even number of elements in a row,
///   `hadamard` a multiple of 16 rows
/// @param machine where to run; null: the default machine
SWAMP_API void quantize_blocks(const Matrix& x, const BlockCodes* rows,
                               const BlockCodes* columns,
                               const BlockOptions& options = {},
                               Machine* machine = nullptr);

/// ValueReport is what quantized_values() and block_amax() have seen.
struct ValueReport {
  /// The largest |x|, and that of the columns after the Hadamard transform. nan
  /// if x has a nan and the scaling does not skip it; 0 of given factors.
  float amax = 0;
  float column_amax = 0;  ///< the same of columns
  /// Whether x, or a transformed column, has a nan; not of given factors.
  bool has_nan = false;
  /// false: bfloat16 lacks bits of some values, which are cut off, because
  /// their exponents are too small, or float32 scales no powers of two. float32
  /// has the values.
  bool exact = true;
  std::uint64_t saturated = 0;  ///< beyond the largest number, inf included
  std::uint64_t flushed = 0;    ///< became 0, but were not
};

/// quantized_values sets `rows` and `columns` to the values of the codes that
/// quantize_blocks() makes along rows and along columns, with the same random
/// bits, in the same pass: code * scale, rounded to float32. Scales of NVFP4
/// are without the factor of the tensor, amax / 2688, which is applied to a sum
/// of products. Values lie as x does, along columns too.
///
/// @param x float16, bfloat16 or float32
/// @param format of the codes, which has a sign
/// @param[out] rows bfloat16 or float32, of the shape of x; may be null. With
///   scales that are no powers of two (te_block, torchao_float8) only float32
///   has the values, so that bfloat16 would be a pass in vain.
/// @param[out] columns the same along columns, of the dtype of `rows`; must be
///   null if square, as the values along rows are the same
/// @param options the rule
/// @param machine where to run; null: the default machine
/// @return largest magnitudes; whether bfloat16 has all values; counts of all
///   values
SWAMP_API ValueReport quantized_values(const Matrix& x, ScalarType format,
                                       const Matrix* rows,
                                       const Matrix* columns,
                                       const BlockOptions& options = {},
                                       Machine* machine = nullptr);

/// block_amax sets `rows` and `columns` to the largest magnitude of each block
/// along rows and along columns; nan does not count. Either may be null.
///
/// @param x float16, bfloat16 or float32
/// @param[out] rows float32, [rows, columns / block rounded up]
/// @param[out] columns float32, [columns, rows / block rounded up]
/// @param options `block` (0: 128) and `hadamard`, of the columns
/// @param machine where to run; null: the default machine
/// @return the largest magnitudes
SWAMP_API ValueReport block_amax(const Matrix& x, const Tensor* rows,
                                 const Tensor* columns,
                                 const BlockOptions& options = {},
                                 Machine* machine = nullptr);

/// dequantize_blocks sets x to round(code * scale). The value of an NVFP4 scale
/// is its code's value times tensor_amax / 2688, in the original's order.
///
/// @param codes as quantize_blocks() returns them along rows
/// @param[out] x float16, bfloat16 or float32
/// @param options scaling, block, square and tensor_amax as they were
/// @param machine where to run; null: the default machine
SWAMP_API void dequantize_blocks(const BlockCodes& codes, const Matrix& x,
                                 const BlockOptions& options = {},
                                 Machine* machine = nullptr);

/// hadamard_transform sets out to the random Hadamard transform of each 16
/// neighbours of a row of x: signs, Sylvester's matrix, times 1/4, with
/// Transformer Engine's fixed signs. The sum is exact in double or rounded
/// there, then rounded to float32, then to the dtype. A nan is positive.
///
/// @param x float16, bfloat16 or float32; a multiple of 16 columns
/// @param[out] out like x; may be x
/// @param machine where to run; null: the default machine
SWAMP_API void hadamard_transform(const Matrix& x, const Matrix& out,
                                  Machine* machine = nullptr);

/// ScaledMatrix is a matrix of codes, row after row, and what they are
/// multiplied by. A row has an even number of elements of float4_e2m1fn_x2.
struct ScaledMatrix {
  Tensor codes;  ///< of a format of at most 8 bits
  /// float32, or float8_e8m0fnu, or float8_e4m3fn for NVFP4; as
  /// quantize_blocks() stores them along rows, or one for all.
  Tensor scales;
  std::size_t rows = 0;     ///< of the matrix
  std::size_t columns = 0;  ///< elements of a row
  /// Elements of a scale: even, at most 128 or, if that is more, `columns`. 0:
  /// a row. The last block of a row may have fewer elements.
  std::size_t block = 0;
  bool square = false;  ///< as BlockOptions::square
  /// Of NVFP4, which needs it: as BlockOptions::tensor_amax.
  float tensor_amax = std::numeric_limits<float>::quiet_NaN();
};

/// nvfp4_factor returns what a product of NVFP4 matrices is multiplied by: the
/// parts of their scales that belong to the tensors, in the order of
/// Transformer Engine's reference. quantized_values() leaves them out.
///
/// @param amax_a the largest magnitude of a, as BlockOptions::tensor_amax
/// @param amax_b that of b
inline float nvfp4_factor(float amax_a, float amax_b) noexcept {
  return amax_a * amax_b / (6 * 6 * 448 * 448);
}

/// product sets out to a * b^T, with the sums of the scaled codes: within a
/// block of elements the sum is exact and rounded to float32 once, so that the
/// result does not depend on threads or order. With s the float32 product of
/// the two scales of a block, each operation in float32:
/// without blocks, out = round(s * sum); with blocks, y = y + s * sum, one
/// block after another from 0, and out = round(y). For NVFP4 y is finally
/// multiplied by nvfp4_factor().
///
/// @param[out] out float16, bfloat16 or float32, [a.rows, b.rows]
/// @param a codes of [rows, columns]; the sum of a block must fit into two
///   doubles: up to 32768 elements of any two formats; at most 2^24 columns
/// @param b as many columns as a; blocks of the same number of elements, or
///   none
/// @param machine where to run; null: the default machine
SWAMP_API void product(const Matrix& out, const ScaledMatrix& a,
                       const ScaledMatrix& b, Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_FLOAT8_H_
