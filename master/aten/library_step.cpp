// How the operators of a training step are registered: what they write is told
// to autograd, and their Meta kernels are for FakeTensor and torch.compile.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "swamp/aten.h"

namespace swamp::aten {
namespace {

constexpr char kNorm[] = "swamp::grad_norm_and_check";
constexpr char kAdamw[] = "swamp::mixed_precision_adamw_";

template <class Function>
const auto& operation(const char* name) {
  static const auto found = c10::Dispatcher::singleton()
                                .findSchemaOrThrow(name, "")
                                .typed<Function>();
  return found;
}

// require_no_grad() refuses to write what autograd follows.
void require_no_grad(const at::Tensor& tensor) {
  TORCH_CHECK(
      !(at::GradMode::is_enabled() && tensor.requires_grad()),
      tensor.is_leaf()
          ? "a leaf Variable that requires grad is being used in an "
            "in-place operation."
          : "a Variable that requires grad is being used in an in-place "
            "operation that has no derivative; use torch.no_grad().");
}

void require_no_grad(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) require_no_grad(tensor);
}

// wrote() is what PyTorch's own in-place operators tell: a backward pass that
// still needs the old values will say so.
void wrote(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

void wrote(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) wrote(tensor);
}

at::Tensor norm_meta(at::TensorList, at::Tensor, const at::Tensor&) {
  return at::empty({}, at::TensorOptions()
                           .dtype(at::ScalarType::Double)
                           .device(at::DeviceType::Meta));
}

at::Tensor norm_autograd(at::TensorList grads, at::Tensor found_inf,
                         const at::Tensor& inv_scale) {
  require_no_grad(found_inf);
  const at::AutoDispatchBelowAutograd guard;
  return operation<decltype(grad_norm_and_check)>(kNorm).call(grads, found_inf,
                                                              inv_scale);
}

at::Tensor norm_inplace(at::TensorList grads, at::Tensor found_inf,
                        const at::Tensor& inv_scale) {
  at::Tensor norm;
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    norm = operation<decltype(grad_norm_and_check)>(kNorm).call(
        grads, found_inf, inv_scale);
  }
  wrote(found_inf);
  return norm;
}

void adamw_meta(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                at::TensorList, at::Tensor, const at::Tensor&,
                const at::Tensor&, const std::optional<at::Tensor>&, double,
                double, double, double, double, double) {}

void adamw_autograd(at::TensorList master_params, at::TensorList grads,
                    at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                    at::TensorList model_params, at::Tensor step,
                    const at::Tensor& found_inf, const at::Tensor& inv_scale,
                    const std::optional<at::Tensor>& grad_norm, double lr,
                    double beta1, double beta2, double weight_decay, double eps,
                    double max_norm) {
  for (const at::TensorList list :
       {master_params, exp_avgs, exp_avg_sqs, model_params}) {
    require_no_grad(list);
  }
  require_no_grad(step);
  const at::AutoDispatchBelowAutograd guard;
  operation<decltype(mixed_precision_adamw_)>(kAdamw).call(
      master_params, grads, exp_avgs, exp_avg_sqs, model_params, step,
      found_inf, inv_scale, grad_norm, lr, beta1, beta2, weight_decay, eps,
      max_norm);
}

void adamw_inplace(at::TensorList master_params, at::TensorList grads,
                   at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                   at::TensorList model_params, at::Tensor step,
                   const at::Tensor& found_inf, const at::Tensor& inv_scale,
                   const std::optional<at::Tensor>& grad_norm, double lr,
                   double beta1, double beta2, double weight_decay, double eps,
                   double max_norm) {
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    operation<decltype(mixed_precision_adamw_)>(kAdamw).call(
        master_params, grads, exp_avgs, exp_avg_sqs, model_params, step,
        found_inf, inv_scale, grad_norm, lr, beta1, beta2, weight_decay, eps,
        max_norm);
  }
  for (const at::TensorList list :
       {master_params, exp_avgs, exp_avg_sqs, model_params}) {
    wrote(list);
  }
  wrote(step);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  m.def(
      "grad_norm_and_check(Tensor[] grads, Tensor(a!) found_inf, "
      "Tensor inv_scale) -> Tensor");
  m.def(
      "mixed_precision_adamw_(Tensor(a!)[] master_params, Tensor[] grads, "
      "Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] model_params, Tensor(e!) step, Tensor found_inf, "
      "Tensor inv_scale, Tensor? grad_norm=None, *, float lr, float beta1, "
      "float beta2, float weight_decay, float eps, float max_norm=0.0) -> ()");
}

TORCH_LIBRARY_IMPL(swamp, CPU, m) {
  m.impl("grad_norm_and_check", &grad_norm_and_check);
  m.impl("mixed_precision_adamw_", &mixed_precision_adamw_);
}

TORCH_LIBRARY_IMPL(swamp, Meta, m) {
  m.impl("grad_norm_and_check", &norm_meta);
  m.impl("mixed_precision_adamw_", &adamw_meta);
}

TORCH_LIBRARY_IMPL(swamp, ADInplaceOrView, m) {
  m.impl("grad_norm_and_check", &norm_inplace);
  m.impl("mixed_precision_adamw_", &adamw_inplace);
}

TORCH_LIBRARY_IMPL(swamp, Autograd, m) {
  m.impl("grad_norm_and_check", &norm_autograd);
  m.impl("mixed_precision_adamw_", &adamw_autograd);
}

}  // namespace swamp::aten
