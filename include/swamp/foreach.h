/// @file
/// The operations of a mixed-precision optimizer on lists of tensors: cast,
/// accumulate, lerp, zero, norm, count of zeros, step. Every function makes one
/// pass over its lists, on all slaves; its results are the same bits on every
/// machine, backend, transfer mode, ISA and number of slaves.
///
/// Common to all: any thread may call, also several at once on one machine.
/// Arrays are contiguous, belong to the caller and must not overlap, except
/// that an input may be given twice. Corresponding lists have the same number
/// of tensors, and tensors i the same number of elements. Every function throws
/// Error before anything is written, with the list's name and the tensor's
/// index in the text: SWAMP_INVALID_ARGUMENT for lists that do not agree, an
/// unknown dtype, null data with a count, or data not aligned to its element;
/// SWAMP_UNSUPPORTED for a dtype that the function does not take. `machine`
/// runs the operation; null: Machine::default_machine().
#ifndef SWAMP_FOREACH_H_
#define SWAMP_FOREACH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <variant>

#include "swamp/amp.h"
#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// foreach_cast_() sets out = cast(in / divisor): FSDP's post-divide and cast
/// of reduced gradients, or, with a divisor of 1, the copy between model and
/// main parameters. The quotient is rounded to the dtype of `in` before the
/// cast.
///
/// @param out float32 for 16-bit `in`; float16, bfloat16 or float32 for float32
/// @param in float16, bfloat16 or float32; only read
/// @param divisor 1: no division
/// @param machine see above
SWAMP_API void foreach_cast_(TensorList out, TensorList in, float divisor = 1,
                             Machine* machine = nullptr);

/// foreach_accumulate_() sets sum = (sum + in) / divisor in float32: gradient
/// accumulation over micro batches, whose last call may divide by their number.
///
/// @param sum float32
/// @param in float16, bfloat16 or float32; only read
/// @param divisor 1: no division
/// @param machine see above
SWAMP_API void foreach_accumulate_(TensorList sum, TensorList in,
                                   float divisor = 1,
                                   Machine* machine = nullptr);

/// foreach_lerp_() sets out = out + weight * (in - out), with the bits of
/// torch._foreach_lerp_() of a number: computed in float32, with one fused
/// multiply-add and one rounding, from `in` if |weight| is 0.5 or more. With
/// weight = 1 - decay, `out` is the exponential moving average of `in`.
///
/// @param out the dtype of `in`, or float32
/// @param in float16, bfloat16 or float32; only read
/// @param weight rounded to float; not checked
/// @param machine see above
SWAMP_API void foreach_lerp_(TensorList out, TensorList in, double weight,
                             Machine* machine = nullptr);

/// foreach_zero_() sets every element to +0: a zero_grad().
///
/// @param tensors float16, bfloat16 or float32
/// @param machine see above
SWAMP_API void foreach_zero_(TensorList tensors, Machine* machine = nullptr);

/// foreach_norm() returns the 2-norm of the unscaled gradients: the square root
/// of the sum of double(f32(g * inv_scale))^2. Squares and sums are double: 16
/// lanes by the index in the tensor, added as a fixed binary tree for every
/// grain of the list, and the grains in list order. Finds inf and nan in the
/// same pass, as amp_foreach_non_finite_check_and_unscale_() does; reads only.
///
/// @param tensors float16, bfloat16, float32, float64 (whose product with
///   inv_scale is double), float8_e4m3fn or float8_e5m2
/// @param inv_scale usually 1 / loss scale
/// @param[in,out] found_inf set to 1.0f if an element is inf or nan, else left
///   unchanged; may be null
/// @param[out] report written if not null
/// @param machine see above
/// @return not finite if an unscaled element is not; 0 for an empty list
SWAMP_API double foreach_norm(TensorList tensors, float inv_scale = 1,
                              float* found_inf = nullptr,
                              OverflowReport* report = nullptr,
                              Machine* machine = nullptr);

/// foreach_count_zeros() returns how many elements are +0 or -0.
///
/// @param tensors float16, bfloat16 or float32; only read
/// @param machine see above
SWAMP_API std::uint64_t foreach_count_zeros(TensorList tensors,
                                            Machine* machine = nullptr);

/// SgdOptions are the options of torch.optim.SGD, with its defaults.
struct SgdOptions {
  double lr = 1e-3;         ///< learning rate, at least 0
  double momentum = 0;      ///< at least 0; 0: there are no momentum buffers
  double dampening = 0;     ///< of the momentum
  double weight_decay = 0;  ///< L2 penalty; at least 0
  bool nesterov = false;    ///< needs a momentum and no dampening
  bool maximize = false;    ///< true: as with the gradients' negative
};

/// AdamOptions are the options of torch.optim.Adam, with its defaults.
/// `decoupled` selects AdamW; AdamWOptions has the defaults of AdamW.
struct AdamOptions {
  double lr = 1e-3;         ///< learning rate, at least 0
  double beta1 = 0.9;       ///< of the first moment, in [0, 1)
  double beta2 = 0.999;     ///< of the second moment, in [0, 1)
  double eps = 1e-8;        ///< added to the root, at least 0
  double weight_decay = 0;  ///< at least 0
  bool decoupled = false;   ///< true: AdamW's decay; false: L2 penalty
  bool amsgrad = false;     ///< true: divides by the largest second moments
  bool maximize = false;    ///< true: as with the gradients' negative
};

/// AdamWOptions are AdamOptions with the defaults of torch.optim.AdamW:
/// weight_decay 0.01, decoupled.
struct AdamWOptions : AdamOptions {
  /// torch's defaults.
  AdamWOptions() {
    weight_decay = 0.01;
    decoupled = true;
  }
};

/// SgdStep describes one step of torch.optim.SGD.
struct SgdStep : SgdOptions {
  /// First step: the momentum buffers are set to the gradients.
  bool first = false;
};

/// Elements of a block of BlockMoments; the last block of a tensor may have
/// fewer.
inline constexpr int kMomentBlock = 256;

/// BlockMoments are the moments of one parameter in 8 bits: codes, and the
/// largest absolute values of each block.
using BlockMoments = swamp_block_moments;

/// AdamStep describes one step of Adam or AdamW.
///
/// Less memory than float32 masters and moments need, not with amsgrad:
/// - `stochastic`: params may be float16 or bfloat16, without model_params, and
///   the moments float32 or bfloat16. A 16-bit value is widened to float32, and
///   rounded stochastically after the step. A gradient has the dtype of its
///   param, or of its model param.
/// - `compensations`: params are float16 or bfloat16, and each with its
///   compensation is one number of twice the digits (Kahan). Moments are
///   float32 or bfloat16, rounded stochastically.
/// - `block_moments`: the moments are 8-bit codes, of bitsandbytes or, with
///   `float8_moments`, as torchao.optim.AdamWFp8 has them, together with any of
///   the weights above: float32 params, with or without model_params, or 16-bit
///   ones, with `stochastic` or with compensations. If a gradient is inf or
///   nan, all moments of its block become nan.
/// The random bits are a function of seed, step, id and index: the same on
/// every machine.
struct AdamStep : AdamOptions {
  /// Counted from 1, below 2^53: for the bias corrections.
  std::int64_t step = 1;
  /// float32, of amsgrad, written: the largest second moments, 0 before the
  /// first step; without amsgrad an empty list.
  TensorList max_exp_avg_sqs = {};
  /// Whether 16-bit params and moments are rounded stochastically.
  bool stochastic = false;
  /// Of the params' dtype, written: 0 before the first step; an empty list
  /// without compensation.
  TensorList compensations = {};
  /// One for each param, written; exp_avgs and exp_avg_sqs are empty then.
  /// null: the moments are not 8-bit.
  const BlockMoments* block_moments = nullptr;
  /// Whether the codes of block_moments are float8_e4m3fn.
  bool float8_moments = false;
  std::uint64_t seed = 0;  ///< of the random bits
  /// A number for each param, all of them different; null: their indices.
  const std::uint64_t* ids = nullptr;
  /// Of a param that is a part of a larger one: the index of its first element
  /// there, which chooses the random bits; null: 0.
  const std::uint64_t* first_elements = nullptr;
};

/// OptimizerStep is a step of one of the optimizers.
using OptimizerStep = std::variant<AdamStep, SgdStep>;

/// StepScaling is the scaling of a gradient before it is used:
/// g = f32(f32(g * inv_scale) * clip_coefficient). Gradients are never written.
struct StepScaling {
  float inv_scale = 1;         ///< usually 1 / loss scale
  float clip_coefficient = 1;  ///< at most 1: see clip_coefficient()
};

/// The formula of clip_coefficient().
enum class ClipRule {
  megatron,  ///< max_norm / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_
  mindspore  ///< max_norm / norm, as mindspore.ops.clip_by_global_norm
};

/// clip_coefficient() returns the factor of the gradients as a float if it is
/// below 1, otherwise 1.
///
/// @param max_norm 0 or less: 1
/// @param norm of all gradients
/// @param rule the formula
SWAMP_API float clip_coefficient(double max_norm, double norm,
                                 ClipRule rule = ClipRule::megatron) noexcept;

/// foreach_norm() as its parts: writes the sum of squares of each grain. Their
/// sum, in this order, is the square of the norm. Lists that are divided where
/// a tensor of at least 8192 elements begins have the grains of the whole list,
/// if that has less than 2^27 elements.
///
/// @param tensors as there
/// @param inv_scale as there
/// @param[in,out] found_inf as there
/// @param visit called with each sum of squares, in list order
/// @param machine see above
SWAMP_API void foreach_squares(TensorList tensors, float inv_scale,
                               float* found_inf,
                               const std::function<void(double)>& visit,
                               Machine* machine = nullptr);

/// foreach_sgd_() takes a step as torch.optim.SGD(foreach=False, fused=False)
/// does, in its vectorised form (add with alpha is one fused multiply-add).
///
/// @param params float32 (master) weights
/// @param gradients float16, bfloat16 or float32; only read
/// @param momentum_buffers float32; an empty list without momentum
/// @param model_params float16 or bfloat16: set to the new weights, rounded; or
///   an empty list
/// @param step numbers; not checked
/// @param scaling see StepScaling
/// @param machine see above
SWAMP_API void foreach_sgd_(TensorList params, TensorList gradients,
                            TensorList momentum_buffers,
                            TensorList model_params, const SgdStep& step,
                            const StepScaling& scaling = {},
                            Machine* machine = nullptr);

/// foreach_adam_() takes a step by the formula of torch's fused CPU Adam and
/// AdamW kernel (FusedAdamKernel.cpp, its vector body).
///
/// @param params float32 (master) weights; see AdamStep for others
/// @param gradients float16, bfloat16 or float32; only read
/// @param exp_avgs float32: first moments; see AdamStep for others
/// @param exp_avg_sqs float32: second moments; see AdamStep for others
/// @param model_params float16 or bfloat16: set to the new weights, rounded; or
///   an empty list
/// @param step numbers (only step.step is checked), the list of amsgrad, and
///   the options that take less memory
/// @param scaling see StepScaling
/// @param machine see above
SWAMP_API void foreach_adam_(TensorList params, TensorList gradients,
                             TensorList exp_avgs, TensorList exp_avg_sqs,
                             TensorList model_params, const AdamStep& step,
                             const StepScaling& scaling = {},
                             Machine* machine = nullptr);

/// foreach_step_() takes a step of the optimizer that `step` has: see
/// foreach_adam_() and foreach_sgd_(). `first_states` are its first moments or
/// momentum buffers, `second_states` its second moments or an empty list.
SWAMP_API void foreach_step_(TensorList params, TensorList gradients,
                             TensorList first_states, TensorList second_states,
                             TensorList model_params, const OptimizerStep& step,
                             const StepScaling& scaling = {},
                             Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_FOREACH_H_
