// PyTorch's operators log_softmax, cross_entropy_loss, layer_norm and rms_norm
// for float16 and bfloat16, and with `reproducible` also for float32, with
// softmax: if switched on, swamp's row operators; else, and for everything
// else, PyTorch's own kernels. nll_loss, and cross_entropy_loss of class
// probabilities, are then PyTorch's in float32, because sums of float16 losses
// are inf.
//
// cross_entropy_loss, layer_norm and rms_norm are composed of other operators
// in PyTorch. What looks at these sees PyTorch's, not swamp's: see is_seen().
// torch.compile sees swamp's, because inductor's code for PyTorch's is slower
// and has other bits; swamp::_log_softmax exists for it alone.
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Reduction.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/cross_entropy_loss_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/embedding_dense_backward_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/layer_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/max_pool1d_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/native_layer_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
#include <ATen/ops/nll_loss_nd_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"

namespace swamp::aten {
namespace {

using at::Tensor;

// Whether torch.compile traces the call that this thread runs; see
// swamp_torch/_compile.py.
thread_local bool compiling = false;

bool set_compiling(bool value) { return std::exchange(compiling, value); }

bool is_ours(const Tensor& x) {
  return is_switched(x.scalar_type()) && is_plain(x, x.scalar_type()) &&
         (compiling || !x.unsafeGetTensorImpl()->has_symbolic_sizes_strides());
}

bool is_same(const c10::SymInt& a, const c10::SymInt& b) {
  return TORCH_GUARD_OR_FALSE(a.sym_eq(b));
}

bool is_same(c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const auto& one, const auto& other) { return is_same(one, other); });
}

// is_vector() returns whether swamp takes a weight or bias; it may be absent.
bool is_vector(const OptionalTensor& vector, const Tensor& x,
               c10::SymIntArrayRef sizes) {
  return !is_defined(vector) || ((is_plain(*vector, x.scalar_type()) ||
                                  is_plain(*vector, at::kFloat)) &&
                                 is_same(vector->sym_sizes(), sizes));
}

// as_rows() returns a contiguous matrix whose rows are along dimension `dim`.
Tensor as_rows(const Tensor& x, std::int64_t dim) {
  return contiguous(x.movedim(dim, -1)).view({-1, x.size(dim)});
}

// from_rows() is the inverse: it returns a contiguous tensor of x's shape.
Tensor from_rows(const Tensor& rows, const Tensor& x, std::int64_t dim) {
  if (dim == x.dim() - 1) return rows.view(x.sizes());
  auto sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  sizes.push_back(x.size(dim));
  // contiguous() would keep the strides of dimensions of size 1.
  return rows.view(sizes).movedim(-1, dim).clone(at::MemoryFormat::Contiguous);
}

// has_rows() returns whether swamp computes rows of x along dimension `dim`.
bool has_rows(const Tensor& x, std::int64_t dim) {
  return is_ours(x) && x.dim() != 0 && x.numel() != 0 && dim >= -x.dim() &&
         dim < x.dim();
}

// along_rows() calls compute(rows, y) and returns y in the shape of x.
template <class Compute>
Tensor along_rows(const Tensor& x, std::int64_t dim, const Compute& compute) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  dim = dim < 0 ? dim + x.dim() : dim;
  const Tensor rows = row_major(as_rows(x, dim)),
               y = at::empty(rows.sizes(), rows.options());
  translated([&] { compute(matrix_of(rows), matrix_of(y)); });
  return from_rows(y, x, dim);
}

// gradient_along_rows() calls compute(gradient, y, dx), with the result y.
template <class Compute>
Tensor gradient_along_rows(const Tensor& grad, const Tensor& y,
                           std::int64_t dim, const Compute& compute) {
  return along_rows(y, dim, [&](const Matrix& rows, const Matrix& dx) {
    const Tensor gradient =
        row_major(as_rows(grad, dim < 0 ? dim + y.dim() : dim));
    compute(matrix_of(gradient), rows, dx);
  });
}

// have_rows() returns whether swamp takes the gradients of rows.
bool have_rows(const Tensor& grad, const Tensor& y, std::int64_t dim,
               at::ScalarType input_type) {
  return input_type == y.scalar_type() && has_rows(y, dim) &&
         is_plain(grad, input_type) && grad.sizes() == y.sizes();
}

// PyTorch's log_softmax of shorter rows takes less time.
constexpr std::int64_t kLongRow = 768;

// is_faster() returns whether PyTorch's kernel computes 16-bit rows in less
// time than swamp's; those of other dimensions than the last are transposed.
bool is_faster(const Tensor& x, std::int64_t dim) {
  return !is_reproducible() && is_half(x.scalar_type()) &&
         (x.numel() < kLeastElements || x.size(dim) < kLongRow ||
          (dim != -1 && dim != x.dim() - 1));
}

Tensor log_softmax(const Tensor& x, std::int64_t dim, bool half_to_float) {
  if (half_to_float && is_wide_softmax(x, dim)) return wide_softmax(x, true);
  if (half_to_float || !has_rows(x, dim) || is_faster(x, dim)) {
    return at::cpu::_log_softmax(x, dim, half_to_float);
  }
  return along_rows(x, dim, [](const Matrix& rows, const Matrix& y) {
    swamp::log_softmax(rows, y);
  });
}

Tensor log_softmax_backward(const Tensor& grad, const Tensor& y,
                            std::int64_t dim, at::ScalarType input_type) {
  if (is_wide_gradient(y, input_type)) {
    return wide_softmax_backward(grad, y, dim, input_type, true);
  }
  if (!have_rows(grad, y, dim, input_type) || is_faster(y, dim)) {
    return at::cpu::_log_softmax_backward_data(grad, y, dim, input_type);
  }
  return gradient_along_rows(
      grad, y, dim,
      [](const Matrix& gradient, const Matrix& rows, const Matrix& dx) {
        swamp::log_softmax_backward(gradient, rows, dx);
      });
}

// PyTorch's softmax of 16 bits is faster, so only `reproducible` replaces it.
Tensor softmax(const Tensor& x, std::int64_t dim, bool half_to_float) {
  if (half_to_float && is_wide_softmax(x, dim)) return wide_softmax(x, false);
  if (half_to_float || !is_reproducible() || !has_rows(x, dim)) {
    return at::cpu::_softmax(x, dim, half_to_float);
  }
  return along_rows(x, dim, [](const Matrix& rows, const Matrix& y) {
    swamp::scaled_softmax(rows, y);
  });
}

Tensor softmax_backward(const Tensor& grad, const Tensor& y, std::int64_t dim,
                        at::ScalarType input_type) {
  if (is_wide_gradient(y, input_type)) {
    return wide_softmax_backward(grad, y, dim, input_type, false);
  }
  if (!is_reproducible() || !have_rows(grad, y, dim, input_type)) {
    return at::cpu::_softmax_backward_data(grad, y, dim, input_type);
  }
  return gradient_along_rows(
      grad, y, dim,
      [](const Matrix& gradient, const Matrix& rows, const Matrix& dx) {
        swamp::scaled_softmax_backward(gradient, rows, dx);
      });
}

// swamp::_log_softmax is log_softmax() with its backward, which inductor does
// not decompose as it does PyTorch's.
Tensor opaque_log_softmax(const Tensor& x, std::int64_t dim) {
  if (x.is_meta()) return at::empty_like(x, at::MemoryFormat::Contiguous);
  return contiguous(log_softmax(x, dim, false));
}

Tensor opaque_log_softmax_backward(const Tensor& grad, const Tensor& y,
                                   std::int64_t dim) {
  if (y.is_meta()) return at::empty_like(y, at::MemoryFormat::Contiguous);
  return contiguous(log_softmax_backward(grad, y, dim, y.scalar_type()));
}

struct AutogradLogSoftmax : torch::autograd::Function<AutogradLogSoftmax> {
  static Tensor forward(torch::autograd::AutogradContext* context,
                        const Tensor& x, std::int64_t dim) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Tensor y = call<&opaque_log_softmax>(x, dim);
    context->save_for_backward({y});
    context->saved_data["dim"] = dim;
    return y;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list grads) {
    return {call<&opaque_log_softmax_backward>(
                grads[0], context->get_saved_variables()[0],
                context->saved_data.at("dim").toInt()),
            Tensor()};
  }
};

// is_cross_entropy() returns whether swamp computes a loss, which it does only
// for class indices. PyTorch's own kernel gets all others; it refuses some.
bool is_cross_entropy(const Tensor& x, const Tensor& target,
                      const OptionalTensor& weight, std::int64_t reduction,
                      double label_smoothing) {
  if (!is_ours(x) || x.dim() < 1 || target.is_floating_point() ||
      target.scalar_type() != at::kLong || !target.is_cpu() || reduction < 0 ||
      reduction > 2 || !(label_smoothing >= 0 && label_smoothing <= 1) ||
      target.dim() != x.dim() - 1 || is_seen({x, target, weight})) {
    return false;
  }
  const std::int64_t classes = x.dim() == 1 ? 0 : 1;
  if (is_same(x.sym_size(classes), 0)) return false;
  for (std::int64_t i = 0; i < target.dim(); ++i) {
    if (!is_same(target.sym_size(i), x.sym_size(i < classes ? i : i + 1))) {
      return false;
    }
  }
  return !is_defined(weight) ||
         ((weight->scalar_type() == x.scalar_type() ||
           weight->scalar_type() == at::kFloat) &&
          weight->dim() == 1 &&
          is_same(weight->sym_size(0), x.sym_size(classes)));
}

// ClassesLast moves the classes of [batch, classes, ...] to the last dimension.
// The gradient is contiguous, as PyTorch's.
struct ClassesLast : torch::autograd::Function<ClassesLast> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    return x.movedim(1, -1).contiguous();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0].movedim(-1, 1).clone(at::MemoryFormat::Contiguous)};
  }
};

// float32_loss() is the loss in float32, with autograd.
Tensor float32_loss(const Tensor& x, const Tensor& target,
                    const OptionalTensor& weight, std::int64_t reduction,
                    std::int64_t ignore_index, double label_smoothing) {
  return std::get<0>(
      call_cross_entropy(x.dim() > 2 ? ClassesLast::apply(x) : x, target,
                         weight, {reduction, ignore_index, label_smoothing}));
}

// is_widened() returns whether a loss of 16-bit tensors is computed by PyTorch
// in float32. It takes no weight of another dtype.
bool is_widened(const Tensor& x, const Tensor& target,
                const OptionalTensor& weight) {
  return is_half(x.scalar_type()) && is_ours(x) &&
         (!is_defined(weight) || is_plain(*weight, x.scalar_type())) &&
         !is_seen({x, target, weight});
}

// has_classes_apart() returns whether a loss of 16-bit [batch, classes, ...] is
// PyTorch's, whose kernels need no copy with the classes last, and take less
// time for short rows.
bool has_classes_apart(const Tensor& x) {
  constexpr std::int64_t kFewClasses = 512;
  if (!is_half(x.scalar_type()) || is_reproducible()) return false;
  return x.dim() > 2 ||
         (x.dim() == 2 &&
          !x.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
          x.size(1) < kFewClasses && x.numel() >= kLeastElements);
}

OptionalTensor widened(const OptionalTensor& weight) {
  return is_defined(weight) ? OptionalTensor(weight->to(at::kFloat)) : weight;
}

Tensor nll_loss(const Tensor& x, const Tensor& target,
                const OptionalTensor& weight, std::int64_t reduction,
                c10::SymInt ignore_index) {
  // With autocast the kernels that PyTorch's calls widen x, and the loss is
  // float32.
  if (!is_widened(x, target, weight) ||
      at::autocast::is_autocast_enabled(at::kCPU)) {
    return at::compositeimplicitautograd::nll_loss_nd_symint(
        x, target, weight, reduction, std::move(ignore_index));
  }
  // Those without a weight are elements of x, which no copy rounds.
  if (!is_defined(weight) && reduction == at::Reduction::None) {
    return at::compositeimplicitautograd::nll_loss_nd_symint(
        x, target, weight, reduction, std::move(ignore_index));
  }
  if (is_defined(weight) ||
      x.unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
      x.numel() < kLeastElements ||
      (reduction != at::Reduction::Mean && reduction != at::Reduction::Sum)) {
    return at::compositeimplicitautograd::nll_loss_nd_symint(
               x.to(at::kFloat), target, widened(weight), reduction,
               std::move(ignore_index))
        .to(x.scalar_type());
  }
  const Tensor sum = at::compositeimplicitautograd::nll_loss_nd_symint(
                         x, target, weight, at::Reduction::None, ignore_index)
                         .sum(at::kFloat);
  if (reduction == at::Reduction::Sum) return sum.to(x.scalar_type());
  // uint8 has no -100.
  const Tensor counted = target.to(at::kLong).ne(at::Scalar(ignore_index));
  return sum.div(counted.sum()).to(x.scalar_type());
}

Tensor cross_entropy_loss(const Tensor& x, const Tensor& target,
                          const OptionalTensor& weight, std::int64_t reduction,
                          c10::SymInt ignore_index, double label_smoothing) {
  const bool is_apart = has_classes_apart(x) && is_plain(target, at::kLong);
  if ((is_apart || is_plain(target, x.scalar_type())) &&
      is_widened(x, target, weight)) {
    return at::compositeimplicitautograd::cross_entropy_loss_symint(
               x.to(at::kFloat), is_apart ? target : target.to(at::kFloat),
               widened(weight), reduction, std::move(ignore_index),
               label_smoothing)
        .to(x.scalar_type());
  }
  // PyTorch's own kernel refuses a weight of another dtype.
  if ((is_defined(weight) && weight->scalar_type() != x.scalar_type()) ||
      !is_cross_entropy(x, target, weight, reduction, label_smoothing)) {
    return at::compositeimplicitautograd::cross_entropy_loss_symint(
        x, target, weight, reduction, std::move(ignore_index), label_smoothing);
  }
  return float32_loss(x, target, weight, reduction,
                      ignore_index.guard_int(__FILE__, __LINE__),
                      label_smoothing)
      .to(x.scalar_type());
}

// Autocast's kernel copies the logits to float32 first.
Tensor cross_entropy_loss_autocast(const Tensor& x, const Tensor& target,
                                   const OptionalTensor& weight,
                                   std::int64_t reduction,
                                   c10::SymInt ignore_index,
                                   double label_smoothing) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKey::AutocastCPU);
  if (!has_classes_apart(x) &&
      is_cross_entropy(x, target, weight, reduction, label_smoothing)) {
    return float32_loss(x, target, weight, reduction,
                        ignore_index.guard_int(__FILE__, __LINE__),
                        label_smoothing);
  }
  const auto cast = [](const auto& tensor) {
    return at::autocast::cached_cast(at::kFloat, tensor, c10::DeviceType::CPU);
  };
  return at::cross_entropy_loss_symint(cast(x), cast(target), cast(weight),
                                       reduction, std::move(ignore_index),
                                       label_smoothing);
}

// max_pool1d() without a gradient, in which PyTorch calls no other operator.
Tensor max_pool1d(const Tensor& x, at::IntArrayRef size, at::IntArrayRef stride,
                  at::IntArrayRef padding, at::IntArrayRef dilation,
                  bool ceil_mode) {
  const auto stock = [&](const Tensor& input) {
    return at::compositeimplicitautograd::max_pool1d(
        input, size, stride, padding, dilation, ceil_mode);
  };
  if ((x.requires_grad() && at::GradMode::is_enabled()) ||
      !is_half(x.scalar_type()) || !is_widened(x, x, {})) {
    return stock(x);
  }
  return stock(x.to(at::kFloat)).to(x.scalar_type());
}

// is_norm() returns whether swamp computes a norm over the last dimensions of
// x, whose sizes are `sizes`.
bool is_norm(const Tensor& x, c10::SymIntArrayRef sizes,
             const OptionalTensor& weight, const OptionalTensor& bias) {
  return is_ours(x) && !is_same(x.sym_numel(), 0) && !sizes.empty() &&
         x.dim() >= static_cast<std::int64_t>(sizes.size()) &&
         is_same(x.sym_sizes().slice(static_cast<std::size_t>(x.dim()) -
                                     sizes.size()),
                 sizes) &&
         is_vector(weight, x, sizes) && is_vector(bias, x, sizes) &&
         (!is_defined(weight) || !is_defined(bias) ||
          weight->scalar_type() == bias->scalar_type());
}

// norm_of_rows() calls the operator of a norm. It takes the dimensions of a row
// from the weight or bias, so without them they become one.
Tensor norm_of_rows(const Tensor& x, c10::SymIntArrayRef sizes,
                    const OptionalTensor& weight, const OptionalTensor& bias,
                    double eps, bool with_mean) {
  const bool has_vector = is_defined(weight) || is_defined(bias);
  if (has_vector || sizes.size() == 1) {
    return call_norm(x, weight, bias, eps, with_mean);
  }
  const Tensor rows =
      x.flatten(x.dim() - static_cast<std::int64_t>(sizes.size()));
  return call_norm(rows, {}, {}, eps, with_mean).view_symint(x.sym_sizes());
}

// layer_norm() is composed of native_layer_norm in PyTorch, which rounds mean
// and rstd to 16 bits. swamp's operator keeps them in float32.
Tensor layer_norm(const Tensor& x, c10::SymIntArrayRef sizes,
                  const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps, bool cudnn_enable) {
  if (!is_norm(x, sizes, weight, bias) || is_seen({x, weight, bias})) {
    return at::compositeimplicitautograd::layer_norm_symint(
        x, sizes, weight, bias, eps, cudnn_enable);
  }
  return norm_of_rows(x, sizes, weight, bias, eps, true);
}

NormResult native_layer_norm(const Tensor& x, at::IntArrayRef sizes,
                             const OptionalTensor& weight,
                             const OptionalTensor& bias, double eps) {
  if (!is_norm(x, c10::fromIntArrayRefSlow(sizes), weight, bias)) {
    return at::cpu::native_layer_norm(x, sizes, weight, bias, eps);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto [y, mean, rstd] = norm_rows(
      x, static_cast<std::int64_t>(sizes.size()), weight, bias, eps, true);
  // PyTorch's statistics have the dtype of weight and bias.
  const at::ScalarType type = is_defined(weight) ? weight->scalar_type()
                              : is_defined(bias) ? bias->scalar_type()
                                                 : x.scalar_type();
  return {y, mean.to(type), rstd.to(type)};
}

NormResult native_layer_norm_backward(const Tensor& grad, const Tensor& x,
                                      at::IntArrayRef sizes, const Tensor& mean,
                                      const Tensor& rstd,
                                      const OptionalTensor& weight,
                                      const OptionalTensor& bias,
                                      std::array<bool, 3> mask) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!is_norm(x, c10::fromIntArrayRefSlow(sizes), weight, bias) ||
      !is_plain(grad, x.scalar_type()) || grad.sizes() != x.sizes()) {
    return at::cpu::native_layer_norm_backward(grad, x, sizes, mean, rstd,
                                               weight, bias, mask);
  }
  NormResult result =
      norm_rows_backward(grad, x, static_cast<std::int64_t>(sizes.size()), mean,
                         rstd, weight, mask);
  if (mask[2] && is_defined(bias)) {
    std::get<2>(result) = std::get<2>(result).to(bias->scalar_type());
  }
  return result;
}

// rms_norm() has the order in memory of PyTorch's result. The default of eps is
// PyTorch's.
Tensor rms_norm(const Tensor& x, c10::SymIntArrayRef sizes,
                const OptionalTensor& weight, std::optional<double> eps) {
  if (!is_norm(x, sizes, weight, {}) || is_seen({x, weight})) {
    return at::compositeimplicitautograd::rms_norm_symint(x, sizes, weight,
                                                          eps);
  }
  return norm_of_rows(x, sizes, weight, {},
                      eps.value_or(std::numeric_limits<float>::epsilon()),
                      false)
      .contiguous(x.suggest_memory_format());
}

// embedding_backward() is PyTorch's kernel, which adds the rows in their order.
// It scales a row by fused multiply-add where the CPU has one; with
// `reproducible` the rows are scaled before, in float32.
// swamp::_embedding_dense_backward is the same for inductor, which adds the
// rows by atomics, in any order.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices,
                          c10::SymInt num_weights, c10::SymInt padding_idx,
                          bool scale_grad_by_freq) {
  if (grad.is_meta()) {
    return at::empty_symint({std::move(num_weights), grad.sym_size(-1)},
                            grad.options());
  }
  const at::ScalarType type = grad.scalar_type();
  const at::ScalarType index_type = indices.scalar_type();
  if (scale_grad_by_freq && is_reproducible() && is_real(type) &&
      (index_type == at::kLong || index_type == at::kInt) &&
      grad.numel() != 0) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const at::ScalarType wide = type == at::kDouble ? type : at::kFloat;
    const Tensor all = indices.flatten();
    const Tensor scales = at::bincount(all)
                              .to(at::kDouble)
                              .reciprocal()
                              .to(wide)
                              .index_select(0, all)
                              .unsqueeze(1);
    const Tensor rows = grad.to(wide).reshape({all.numel(), -1}) * scales;
    return at::cpu::embedding_dense_backward_symint(
               rows, all, std::move(num_weights), std::move(padding_idx), false)
        .to(type);
  }
  return at::cpu::embedding_dense_backward_symint(
      grad, indices, std::move(num_weights), std::move(padding_idx),
      scale_grad_by_freq);
}

// swamp::_index_put_sum is index_put(accumulate=True), for the same reason.
Tensor index_put_sum(const Tensor& x, const c10::List<OptionalTensor>& indices,
                     const Tensor& values) {
  if (x.is_meta()) return at::empty_like(x);
  // PyTorch's dispatcher leaves the tensors of such a list as they are.
  c10::List<OptionalTensor> places;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    OptionalTensor one = indices.get(i);
    if (is_defined(one)) {
      one = resolved(*one);
      require_memory(*one);
    }
    places.push_back(one);
  }
  require_memory(x);
  require_memory(values);
  return at::index_put(x, places, values, true);
}

}  // namespace

bool is_seen(std::initializer_list<OptionalTensor> tensors) {
  return at::tracer::impl::is_dispatch_enabled() ||
         at::functorch::maybeCurrentDynamicLayer().has_value() ||
         std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
           return is_defined(tensor) &&
                  ((!compiling && at::isTensorSubclassLike(*tensor)) ||
                   torch::autograd::isFwGradDefined(tensor));
         });
}

void register_rows(torch::Library& library) {
  library.impl("_log_softmax", &log_softmax);
  library.impl("_log_softmax_backward_data", &log_softmax_backward);
  library.impl("_softmax", &softmax);
  library.impl("_softmax_backward_data", &softmax_backward);
  library.impl("native_layer_norm", &native_layer_norm);
  library.impl("native_layer_norm_backward", &native_layer_norm_backward);
  library.impl("embedding_dense_backward", &embedding_backward);
  register_composite_rows(library);
}

void register_composite_rows(torch::Library& library) {
  library.impl("layer_norm", &layer_norm);
  library.impl("rms_norm", &rms_norm);
  library.impl("cross_entropy_loss", &cross_entropy_loss);
  library.impl("nll_loss_nd", &nll_loss);
  register_wide_softmax(library);
  library.impl("max_pool1d", &max_pool1d);
}

void register_autocast_rows(torch::Library& library) {
  library.impl("cross_entropy_loss", &cross_entropy_loss_autocast);
}

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&embedding_backward>(
      m,
      "_embedding_dense_backward(Tensor grad, Tensor indices, "
      "SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> "
      "Tensor");
  define<&index_put_sum>(m,
                         "_index_put_sum(Tensor x, Tensor?[] indices, "
                         "Tensor values) -> Tensor");
  m.def("_set_compiling(bool compiling) -> bool", &set_compiling);
  define<&opaque_log_softmax, AutogradLogSoftmax>(
      m, "_log_softmax(Tensor x, int dim) -> Tensor");
  define<&opaque_log_softmax_backward>(
      m, "_log_softmax_backward(Tensor grad, Tensor y, int dim) -> Tensor");
}

}  // namespace swamp::aten
