/// @file
/// The operators on ATen's tensors: the component `aten`, libswamp_aten.
///
/// Loading the library, by linking it or by `torch.ops.load_library()`,
/// replaces PyTorch's own kernels: from then on
/// `at::_amp_foreach_non_finite_check_and_unscale_()` and
/// `at::_amp_update_scale_()` of CPU tensors run swamp's, for every caller in
/// the process, until set_active(false) restores PyTorch's. It also registers
/// the operators `swamp::*`, which include/swamp/README.md lists. The functions
/// below are the same kernels without the dispatcher: no autograd, no tracing.
///
/// Tensors with a lazy minus sign (`at::Tensor::is_neg()`) and zero tensors are
/// read by their values. Lists that are written may hold such signs, but no
/// zero tensors; one-element arguments that are written must have neither.
/// Tensors whose elements are not in memory, as wrappers, are errors.
///
/// The row operators of swamp/rows.h are called through the dispatcher only,
/// and have gradients; those of softmax and cross entropy are written in place.
///
/// The linker option `--as-needed` drops a library if no function of it is
/// called; calling swamp::aten::version() keeps it.
#ifndef SWAMP_ATEN_H_
#define SWAMP_ATEN_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "swamp/export.h"

namespace swamp::aten {

/// OptionalTensor is what PyTorch's operators take.
using OptionalTensor = std::optional<at::Tensor>;

/// amp_foreach_non_finite_check_and_unscale_() is
/// at::_amp_foreach_non_finite_check_and_unscale_() of CPU tensors: every
/// element of every tensor is multiplied by inv_scale, in place, and found_inf
/// is set to 1 if an element was inf or nan before. The results are those of
/// PyTorch 2.13's kernel, bit for bit (except the payload of a 16-bit nan),
/// with three differences: everything is validated before the first write; an
/// inv_scale of 1 only reads; and under flush-to-zero
/// (`torch.set_flush_denormal(True)`) the results are flushed on every thread,
/// while PyTorch's kernel flushes on the calling thread only, so that its bits
/// depend on the number of threads. Runs on the default machine, on the threads
/// of `at::set_num_threads()`. Any thread may call; two calls at once must not
/// share a tensor.
///
/// @param tensors of any shapes and strides; float16, bfloat16, float32 or
///   float64, which may be mixed; they may overlap each other (then they are
///   unscaled one by one, in order); an empty list returns at once
/// @param found_inf one float32 of any shape; set to 1 or left unchanged
/// @param inv_scale one float32 of any shape
/// @throws c10::Error with PyTorch's words, before anything is written: a
///   tensor that is not on the CPU, not strided or with elements that share
///   memory by a stride of 0; found_inf or inv_scale of another dtype or count.
///   c10::NotImplementedError for another dtype of a tensor
SWAMP_API void amp_foreach_non_finite_check_and_unscale_(
    at::TensorList tensors, at::Tensor& found_inf, const at::Tensor& inv_scale);

/// amp_update_scale_() is at::_amp_update_scale_() of CPU tensors: it
/// multiplies the scale by backoff_factor if found_inf is not 0 (nan counts),
/// and by growth_factor after growth_interval clean calls in a row unless the
/// result would be infinite. Products are computed in double and rounded once.
///
/// @param current_scale one float32 of any shape, written
/// @param growth_tracker one int32 of any shape, written
/// @param found_inf one float32 of any shape
/// @param growth_factor usually above 1; not checked
/// @param backoff_factor usually between 0 and 1; not checked
/// @param growth_interval in calls; 0 or less: it never grows
/// @return current_scale
/// @throws c10::Error with PyTorch's words, before anything is written: a
///   tensor that is not on the CPU, or of another dtype or count
SWAMP_API at::Tensor& amp_update_scale_(at::Tensor& current_scale,
                                        at::Tensor& growth_tracker,
                                        const at::Tensor& found_inf,
                                        double growth_factor,
                                        double backoff_factor,
                                        std::int64_t growth_interval);

/// unscale_() is the operator `swamp::unscale_`:
/// amp_foreach_non_finite_check_and_unscale_() that also takes float8_e4m3fn
/// and float8_e5m2, which PyTorch's operator refuses. Their products are
/// rounded as `Tensor.to()` does.
///
/// @param grads see there
/// @param found_inf see there
/// @param inv_scale see there
/// @throws c10::Error see there
SWAMP_API void unscale_(at::TensorList grads, at::Tensor found_inf,
                        const at::Tensor& inv_scale);

/// any_nonfinite() is the operator `swamp::any_nonfinite`: it searches for inf
/// and nan, and writes nothing.
///
/// `saturated` finds overflows of hardware that stores 65504 in place of inf
/// (Ascend's float status). It is a false alarm if an element has just this
/// value, and an overflow of an intermediate result stays unseen.
///
/// @param tensors of any shapes and strides, also expanded ones; float16,
///   bfloat16, float32, float64, float8_e4m3fn or float8_e5m2, which may be
///   mixed; the list may be empty
/// @param saturated whether +-65504 in a float16 tensor counts, too
/// @return a new float32 CPU tensor without dimensions: 1 if any element is inf
///   or nan, else 0
/// @throws c10::Error for a tensor that is not on the CPU or not strided;
///   c10::NotImplementedError for another dtype
SWAMP_API at::Tensor any_nonfinite(at::TensorList tensors,
                                   bool saturated = false);

/// grad_norm_and_check() is the operator `swamp::grad_norm_and_check`: the
/// 2-norm of the unscaled gradients and the check for inf and nan in one pass
/// that only reads; see swamp::foreach_norm(). If a tensor has no holes, its
/// elements are taken in the order of its memory.
///
/// @param grads float16, bfloat16, float32, float64, float8_e4m3fn or
///   float8_e5m2, which may be mixed; the list may be empty
/// @param found_inf one float32 of any shape; set to 1 or left unchanged
/// @param inv_scale one float32 of any shape
/// @return a new float64 CPU tensor without dimensions
/// @throws c10::Error before anything is written
SWAMP_API at::Tensor grad_norm_and_check(at::TensorList grads,
                                         at::Tensor found_inf,
                                         const at::Tensor& inv_scale);

/// grad_squares_and_check() is grad_norm_and_check() as the sums of squares of
/// its grains, so that lists can be checked in parts; see
/// swamp::foreach_squares(). It is not an operator.
///
/// @param grads as there
/// @param found_inf as there
/// @param inv_scale as there
/// @return the square of the norm is their sum, in this order
/// @throws c10::Error before anything is written
SWAMP_API std::vector<double> grad_squares_and_check(
    at::TensorList grads, at::Tensor found_inf, const at::Tensor& inv_scale);

/// mixed_precision_adamw_() is the operator `swamp::mixed_precision_adamw_`: a
/// step of torch.optim.AdamW(fused=True), from scaled gradients to the model's
/// weights in one pass. If found_inf is not 0, it does nothing. Gradients are
/// not written.
///
/// Tensors may overlap those of other parameters, or be the same: then the
/// parameters are stepped one by one, in the order of the lists. The tensors of
/// one parameter must not overlap each other.
///
/// @param master_params float32, written
/// @param grads float16, bfloat16 or float32, of the masters' shapes
/// @param exp_avgs float32, of the masters' shapes, written
/// @param exp_avg_sqs float32, of the masters' shapes, written
/// @param model_params empty, or float16 or bfloat16 of the masters' shapes:
///   set to the rounded masters
/// @param step one float32: the steps taken so far, a whole number below 2^53;
///   increased by 1
/// @param found_inf one float32 of any shape
/// @param inv_scale one float32 of any shape
/// @param grad_norm one float32 or float64: the norm of the unscaled gradients;
///   if it is missing and max_norm is above 0, it is computed
/// @param lr the learning rate; it is not checked, nor are the next four
/// @param beta1 decay rate of the first moment
/// @param beta2 decay rate of the second moment
/// @param weight_decay decoupled weight decay
/// @param eps added to the square root
/// @param max_norm at least 0; if above, gradients are multiplied by
///   max_norm / (grad_norm + 1e-6) if that is below 1
/// @throws c10::Error before anything is written
SWAMP_API void mixed_precision_adamw_(
    at::TensorList master_params, at::TensorList grads, at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs, at::TensorList model_params, at::Tensor step,
    const at::Tensor& found_inf, const at::Tensor& inv_scale,
    const OptionalTensor& grad_norm, double lr, double beta1, double beta2,
    double weight_decay, double eps, double max_norm);

/// foreach_lerp_() is the operator `swamp::foreach_lerp_`,
/// torch._foreach_lerp_() with a number, in one pass and with the same bits;
/// see swamp::foreach_lerp_().
///
/// @param out float16, bfloat16 or float32, written; tensors may overlap those
///   at other places of the lists: then they are computed one by one, in order
/// @param input of the shapes of `out`; the dtype of `out`, or, if that is
///   float32, any of the three
/// @param weight not checked
/// @throws c10::Error before anything is written
SWAMP_API void foreach_lerp_(at::TensorList out, at::TensorList input,
                             double weight);

/// foreach_zero_() is the operator `swamp::foreach_zero_`:
/// torch._foreach_zero_() in one pass.
///
/// @param tensors float16, bfloat16 or float32, of any strides, written
/// @throws c10::Error before anything is written
SWAMP_API void foreach_zero_(at::TensorList tensors);

/// set_active() is the operator `swamp::set_active`: it chooses the kernels of
/// PyTorch's two operators, for every caller in the process: swamp's (the
/// initial state) or PyTorch's own. Any thread may call, also while operators
/// run: each call of an operator uses either kernel. The operators `swamp::*`
/// are not affected.
///
/// @param active true for swamp's
/// @return the previous value
SWAMP_API bool set_active(bool active);

/// is_active() is the operator `swamp::is_active`.
///
/// @return whether PyTorch's two operators run swamp's kernels
SWAMP_API bool is_active();

/// set_half_precision() is the operator `swamp::set_half_precision`: if active,
/// the CPU's float16 and bfloat16 mm, addmm, bmm, baddbmm, addbmm (and what is
/// made of them: linear, matmul, their backward) are swamp's (swamp/product.h),
/// rounded once, after a bias is added. So are convolutions and their
/// gradients, of 1 to 3 dimensions and transposed ones, and their
/// scaled_dot_product_attention, as with set_attention(). bilinear is computed
/// in float32 and rounded once. PyTorch's own products and convolutions stay in
/// use on CPUs without fused multiply-add, and most of them on those with AMX.
/// Off initially. Any thread may call, also while operators run.
///
/// @param active true: as above; false: PyTorch's own kernels
/// @return the previous value
SWAMP_API bool set_half_precision(bool active);

/// is_half_precision() is the operator `swamp::is_half_precision`.
///
/// @return the value of set_half_precision()
SWAMP_API bool is_half_precision();

/// set_reproducible() is the operator `swamp::set_reproducible`: if active, all
/// operators of set_half_precision() and set_attention() are swamp's for
/// float32, float16 and bfloat16 on every CPU, so that their bits depend
/// neither on it nor on the number of threads. Off initially. Any thread may
/// call, also while operators run.
///
/// @param active true: as above; false: as the other switches say
/// @return the previous value
SWAMP_API bool set_reproducible(bool active);

/// is_reproducible() is the operator `swamp::is_reproducible`.
///
/// @return the value of set_reproducible()
SWAMP_API bool is_reproducible();

/// set_attention() is the operator `swamp::set_attention`: if active,
/// scaled_dot_product_attention of float16, bfloat16 and float32 CPU tensors,
/// and its gradient, are swamp's (swamp/attention.h), without regard to
/// set_half_precision(). What swamp does not take (dropout, float64, more than
/// 512 channels) is PyTorch's. Off initially. Any thread may call, also while
/// operators run.
///
/// @param active true: as above; false: PyTorch's own kernels
/// @return the previous value
SWAMP_API bool set_attention(bool active);

/// is_attention() is the operator `swamp::is_attention`.
///
/// @return the value of set_attention()
SWAMP_API bool is_attention();

/// wgrad_gemm_accum() is the operator `swamp::wgrad_gemm_accum`:
/// main_grad += grad_output^T input, the gradient of a linear layer's weight.
/// The sum is that of swamp/product.h, or on CPUs without fused multiply-add,
/// unless set_reproducible(), that of PyTorch; a float32 main_grad is never
/// rounded to 16 bits, and a 16-bit one once. Does not depend on
/// set_half_precision().
///
/// @param input [..., in], float16, bfloat16 or float32
/// @param grad_output [..., out] of the same dtype and number of rows
/// @param main_grad [out, in], float32 or the dtype of input; written
/// @throws c10::Error before anything is written
SWAMP_API void wgrad_gemm_accum(const at::Tensor& input,
                                const at::Tensor& grad_output,
                                at::Tensor main_grad);

/// version() is the operator `swamp::version`.
///
/// @return the version of libswamp, "major.minor.patch"
SWAMP_API std::string version();

/// info() is the operator `swamp::info`: the default machine, and what this was
/// built for.
///
/// @return a JSON object with the keys of `swamp info --json`, and "torch", the
///   PyTorch version this library was built for
/// @throws c10::Error for a bad value of a variable SWAMP_*
SWAMP_API std::string info();

}  // namespace swamp::aten

#endif  // SWAMP_ATEN_H_
