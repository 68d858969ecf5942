/// @file
/// Activation functions and gated units (SwiGLU, GeGLU), forward and backward.
/// Every element is computed alone and rounded once: float32 in double
/// arithmetic, with errors of at most 0.501 ulp (0.6 backward; of tanh,
/// sigmoid, exp, expm1 and rsqrt at the saved result), 16-bit elements in
/// float32 (powers in double, but x^2, x^3, x^-1 and x^-2). Special values are
/// those of C's functions. The results have the same bits on every machine, and
/// do not depend on the shape.
///
/// Common to all functions: a Machine of null is the default machine. Matrices
/// are float16, bfloat16 or float32; those of one call have the same dtype and
/// shape. Data must be aligned to its element. An output may be the same matrix
/// as an input (in place); otherwise matrices must not overlap. nan becomes a
/// quiet nan. Everything is checked before the first write; Error is thrown for
/// bad arguments. Any thread may call, also several at once on one machine.
#ifndef SWAMP_ACTIVATION_H_
#define SWAMP_ACTIVATION_H_

#include <cstddef>

#include "swamp/c_api.h"
#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/rows.h"
#include "swamp/tensor.h"

namespace swamp {

/// Activation is a function of PyTorch's that is applied to each element.
enum class Activation {
  silu = SWAMP_SILU,            ///< x * sigmoid(x)
  gelu = SWAMP_GELU,            ///< x * Phi(x), Phi: the normal distribution
  gelu_tanh = SWAMP_GELU_TANH,  ///< its approximation by tanh
  tanh = SWAMP_TANH,
  sigmoid = SWAMP_SIGMOID,            ///< 1 / (1 + exp(-x))
  relu = SWAMP_RELU,                  ///< max(x, 0)
  relu_squared = SWAMP_RELU_SQUARED,  ///< max(x, 0)^2
  softplus = SWAMP_SOFTPLUS,          ///< log(1 + exp(beta * x)) / beta
  exp = SWAMP_EXP,
  log = SWAMP_LOG,
  log1p = SWAMP_LOG1P,  ///< log(1 + x)
  expm1 = SWAMP_EXPM1,  ///< exp(x) - 1
  rsqrt = SWAMP_RSQRT,  ///< 1 / sqrt(x)
  mish = SWAMP_MISH,    ///< x * tanh(log(1 + exp(x)))
  elu = SWAMP_ELU,      ///< scale * x, or scale * alpha * (exp(beta * x) - 1)
                        ///< if x <= 0; celu and selu are special cases
  pow = SWAMP_POW,      ///< x^beta
  pow_base = SWAMP_POW_BASE,  ///< beta^x; exp2 with beta = 2
};

/// ActivationOptions selects the function and, of gated units, where rows lie.
struct ActivationOptions {
  Activation function = Activation::silu;  ///< which
  /// Of softplus and elu; the exponent of pow, the base of pow_base. Not
  /// checked.
  float beta = 1;
  float threshold = 20;  ///< of softplus: it is x if beta * x is larger
  /// Elements from one row of x, up and their gradients to the next; 0: as
  /// many as columns. Twice the columns if x and up are the two halves of
  /// one matrix. Only of gated_activation() and its backward.
  std::size_t row_step = 0;
  float alpha = 1;  ///< of elu
  float scale = 1;  ///< of elu
};

/// activation sets y = f(x).
///
/// @param x only read
/// @param y may be x
/// @param options the function
/// @param machine where to run; null: the default machine
SWAMP_API void activation(const Matrix& x, const Matrix& y,
                          const ActivationOptions& options = {},
                          Machine* machine = nullptr);

/// activation_backward sets dx = gradient * f'(x).
///
/// @param gradient of y
/// @param x as in the forward call; for tanh, sigmoid, exp, expm1 and rsqrt its
///     result y
/// @param dx may be gradient or x
/// @param options the function
/// @param machine where to run; null: the default machine
SWAMP_API void activation_backward(const Matrix& gradient, const Matrix& x,
                                   const Matrix& dx,
                                   const ActivationOptions& options = {},
                                   Machine* machine = nullptr);

/// gated_activation sets y = f(x) * up, rounded once: SwiGLU with silu,
/// GeGLU with gelu, GLU with sigmoid.
///
/// @param x only read
/// @param up only read
/// @param y may be x or up if row_step is 0; its rows follow each other
/// @param options the function and row_step
/// @param machine where to run; null: the default machine
SWAMP_API void gated_activation(const Matrix& x, const Matrix& up,
                                const Matrix& y,
                                const ActivationOptions& options = {},
                                Machine* machine = nullptr);

/// gated_activation_backward sets dx = gradient * up * f'(x) and
/// dup = gradient * f(x).
///
/// @param gradient of y
/// @param x as in the forward call
/// @param up as in the forward call
/// @param dx may be x or, if row_step is 0, gradient
/// @param dup may be up
/// @param options the function, and the row_step of x, up, dx and dup
/// @param machine where to run; null: the default machine
SWAMP_API void gated_activation_backward(const Matrix& gradient,
                                         const Matrix& x, const Matrix& up,
                                         const Matrix& dx, const Matrix& dup,
                                         const ActivationOptions& options = {},
                                         Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_ACTIVATION_H_
