/// @file
/// Functions of each element of a 16-bit matrix, and of another operand, that
/// take a few operations: float32 inside, rounded once. The results have the
/// same bits on every machine.
#ifndef SWAMP_POINTWISE_H_
#define SWAMP_POINTWISE_H_

#include <limits>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/rows.h"

namespace swamp {

/// Pointwise is a function of an element x, from `sum` on of another, z, and
/// from `sum_of_product` on of a third, w. Each operation is rounded to
/// float32, the result to the dtype. nan stays nan.
enum class Pointwise {
  /// min(max(x, alpha), beta); beta if alpha is larger, x if it is equal to one
  clamp,
  hard_swish,    ///< x * clamp(x + 3, 0, 6) / 6
  hard_sigmoid,  ///< clamp(x + 3, 0, 6) / 6
  leaky_relu,    ///< x, or of numbers up to 0 x * alpha
  affine,        ///< x * alpha + beta
  sum,           ///< x * alpha + z * beta
  product,       ///< x * z
  /// (d * alpha) * beta, where d is x - z limited to -gamma and gamma
  difference,
  /// (m * alpha) * (d - m / 2), where d is |x - z| and m is min(d, gamma)
  loss,
  scaled_relu,     ///< x, or of numbers up to 0 x * z
  above,           ///< 0 if x <= alpha, otherwise z, also if x is nan
  between,         ///< z * gamma if alpha < x and x < beta, otherwise 0
  leaky_gradient,  ///< z if x > 0, otherwise z * alpha, also if x is nan
  maximum,  ///< the larger of x and z, z if they are equal, nan if one is
  minimum,  ///< the smaller, in the same way
  /// x + (z - x) * alpha if |alpha| < 0.5, else z - (z - x) * (1 - alpha)
  lerp,
  sum_of_product,   ///< x + (z * alpha) * w
  sum_of_quotient,  ///< x + (z * alpha) / w
  lerp_by,          ///< lerp with w in place of alpha
  difference_by     ///< difference with w in place of beta
};

/// PointwiseOptions selects the function, and where z and w are: functions with
/// z need exactly one of the addresses of matrix, row and values, others none;
/// those with w need matrix and third.
struct PointwiseOptions {
  Pointwise function = Pointwise::sum;                   ///< which
  float alpha = 1;                                       ///< not checked
  float beta = 1;                                        ///< not checked
  float gamma = std::numeric_limits<float>::infinity();  ///< not checked
  const void* matrix = nullptr;   ///< the data of a matrix like x
  const void* row = nullptr;      ///< a row like those of x, for all rows
  const float* values = nullptr;  ///< a number for each row of x
  const void* third = nullptr;    ///< the data of a matrix like x, which is w
};

/// pointwise sets y = f(x, z).
///
/// Everything is checked before the first write; Error is thrown for bad
/// arguments. Data must be aligned to its element. Any thread may call, also
/// several at once on one machine.
///
/// @param x float16 or bfloat16; only read; its data may be null: then each of
///     its rows is options.row, which is not z
/// @param y like x; its data may be those of x, options.matrix or
///     options.third, otherwise matrices must not overlap
/// @param options the function, z and w
/// @param machine where to run; null: the default machine
SWAMP_API void pointwise(const Matrix& x, const Matrix& y,
                         const PointwiseOptions& options,
                         Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_POINTWISE_H_
