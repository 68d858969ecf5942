// What loading libswamp_aten registers with PyTorch's dispatcher: swamp's
// kernels for PyTorch's two operators, and the operators swamp::*.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_cpu_dispatch.h>
#include <ATen/ops/_amp_update_scale_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <string>
#include <type_traits>

#include "master/aten/half_precision.h"
#include "master/aten/step.h"
#include "master/aten/tensor.h"
#include "runtime/variables.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

// This is a flag, because a change of the dispatcher's table would free a
// kernel that another thread may be about to call.
std::atomic<bool>& active() noexcept {
  static std::atomic<bool> value{true};
  return value;
}

// unscale() and update_scale() are what the dispatcher calls for PyTorch's two
// operators: swamp's kernels, or PyTorch's own if swamp is not active.
void unscale(at::TensorList tensors, at::Tensor& found_inf,
             const at::Tensor& inv_scale) {
  if (is_active()) {
    amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, inv_scale);
    return;
  }
  at::cpu::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf,
                                                      inv_scale);
}

at::Tensor& update_scale(at::Tensor& current_scale, at::Tensor& growth_tracker,
                         const at::Tensor& found_inf, double growth_factor,
                         double backoff_factor, std::int64_t growth_interval) {
  if (is_active()) {
    return amp_update_scale_(current_scale, growth_tracker, found_inf,
                             growth_factor, backoff_factor, growth_interval);
  }
  return at::cpu::_amp_update_scale_(current_scale, growth_tracker, found_inf,
                                     growth_factor, backoff_factor,
                                     growth_interval);
}

// QuietOverride suppresses the warning that a kernel replaces PyTorch's, which
// is the purpose of the library.
class QuietOverride final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find(kOverride) == std::string::npos) {
      c10::WarningHandler::process(warning);
    }
  }

 private:
  static constexpr const char* kOverride =
      "Overriding a previously registered kernel";
};

// The operators swamp::* that take tensors have kernels for four dispatch keys:
// CPU; Meta, which makes the result for FakeTensor and torch.compile; Autograd,
// because the results have no gradient; and ADInplaceOrView, which tells
// autograd what was written.

// require_no_grad() refuses to write a tensor that autograd tracks.
void require_no_grad(const at::Tensor& tensor) {
  TORCH_CHECK(
      !(at::GradMode::is_enabled() && tensor.requires_grad()),
      tensor.is_leaf()
          ? "a leaf Variable that requires grad is being used in an "
            "in-place operation."
          : "a Variable that requires grad is being used in an in-place "
            "operation that has no derivative; use torch.no_grad().");
}

// for_each_tensor() calls visit(tensor) for the tensors of one argument.
template <class Visit>
void for_each_tensor(Visit visit, const at::Tensor& tensor) {
  visit(tensor);
}
template <class Visit>
void for_each_tensor(Visit visit, at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) visit(tensor);
}
template <class Visit, class Argument>
void for_each_tensor(Visit, const Argument&) {}  // not a tensor

// for_each_written() calls visit(tensor) for the tensors of argument i if bit i
// of kWritten is set.
template <unsigned kWritten, class Visit, class... Arguments>
void for_each_written(Visit visit, const Arguments&... arguments) {
  unsigned bit = 1;
  const auto one = [&](const auto& argument) {
    if ((kWritten & bit) != 0) for_each_tensor(visit, argument);
    bit <<= 1;
  };
  (one(arguments), ...);
}

// Kernels makes an operator's kernels for the keys other than CPU. The result,
// if there is one, is a tensor without dimensions.
template <auto kFunction, const char* kName, unsigned kWritten = 0,
          at::ScalarType kResult = at::ScalarType::Undefined>
struct Kernels;

template <class Result, class... Arguments, Result (*kFunction)(Arguments...),
          const char* kName, unsigned kWritten, at::ScalarType kResult>
struct Kernels<kFunction, kName, kWritten, kResult> {
  static Result meta(Arguments...) {
    if constexpr (!std::is_void_v<Result>) {
      return at::empty(
          {}, at::TensorOptions().dtype(kResult).device(at::DeviceType::Meta));
    }
  }

  static Result autograd(Arguments... arguments) {
    for_each_written<kWritten>(require_no_grad, arguments...);
    const at::AutoDispatchBelowAutograd guard;
    return call(arguments...);
  }

  static Result in_place(Arguments... arguments) {
    const auto below = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return call(arguments...);
    };
    if constexpr (std::is_void_v<Result>) {
      below();
      for_each_written<kWritten>(count_write, arguments...);
    } else {
      Result result = below();
      for_each_written<kWritten>(count_write, arguments...);
      return result;
    }
  }

 private:
  static Result call(Arguments... arguments) {
    static const auto operation = c10::Dispatcher::singleton()
                                      .findSchemaOrThrow(kName, "")
                                      .template typed<Result(Arguments...)>();
    return operation.call(arguments...);
  }
};

constexpr char kAnyNonfiniteName[] = "swamp::any_nonfinite";
constexpr char kNormName[] = "swamp::grad_norm_and_check";
constexpr char kAdamwName[] = "swamp::mixed_precision_adamw_";
constexpr char kLerpName[] = "swamp::foreach_lerp_";
constexpr char kZeroName[] = "swamp::foreach_zero_";
constexpr char kWgradName[] = "swamp::wgrad_gemm_accum";
using AnyNonfinite =
    Kernels<&any_nonfinite, kAnyNonfiniteName, 0, at::ScalarType::Float>;
using Norm = Kernels<&grad_norm_and_check, kNormName, 0b10,  // found_inf
                     at::ScalarType::Double>;
using Adamw =  // all lists but the gradients, and step
    Kernels<&mixed_precision_adamw_, kAdamwName, 0b111101>;
using Lerp = Kernels<&foreach_lerp_, kLerpName, 0b1>;  // out
using Zero = Kernels<&foreach_zero_, kZeroName, 0b1>;
using Wgrad = Kernels<&wgrad_gemm_accum, kWgradName, 0b100>;  // main_grad

// For a list without tensors, which has no device, and for other devices.
at::Tensor any_nonfinite_elsewhere(at::TensorList tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensors.empty(),
                              "swamp::any_nonfinite takes strided CPU tensors");
  return any_nonfinite(tensors);
}

}  // namespace

bool set_active(bool value) { return active().exchange(value); }

bool is_active() { return active().load(std::memory_order_relaxed); }

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  QuietOverride handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale);
  m.impl("_amp_update_scale_", &update_scale);
  register_products(m);
  register_attention(m);
  register_rows(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) { register_composite_rows(m); }

TORCH_LIBRARY_IMPL(aten, AutocastCPU, m) {
  QuietOverride handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  register_autocast_rows(m);
}

TORCH_LIBRARY(swamp, m) {
  m.def("version() -> str", &version);
  m.def("info() -> str", &info);
  m.def("unknown_variables() -> str", &runtime::unknown_variables_warning);
  m.def("set_active(bool active) -> bool", &set_active);
  m.def("is_active() -> bool", &is_active);
  m.def("set_half_precision(bool active) -> bool", &set_half_precision);
  m.def("is_half_precision() -> bool", &is_half_precision);
  m.def("set_attention(bool active) -> bool", &set_attention);
  m.def("is_attention() -> bool", &is_attention);
  m.def("any_nonfinite(Tensor[] tensors) -> Tensor");
  m.def(
      "grad_norm_and_check(Tensor[] grads, Tensor(a!) found_inf, "
      "Tensor inv_scale) -> Tensor");
  m.def(
      "mixed_precision_adamw_(Tensor(a!)[] master_params, Tensor[] grads, "
      "Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] model_params, Tensor(e!) step, Tensor found_inf, "
      "Tensor inv_scale, Tensor? grad_norm=None, *, float lr, float beta1, "
      "float beta2, float weight_decay, float eps, float max_norm=0.0) -> ()");
  m.def("foreach_lerp_(Tensor(a!)[] out, Tensor[] input, float weight) -> ()");
  m.def("foreach_zero_(Tensor(a!)[] tensors) -> ()");
  m.def(
      "wgrad_gemm_accum(Tensor input, Tensor grad_output, "
      "Tensor(a!) main_grad) -> ()");
  register_step_lists(m);
}

TORCH_LIBRARY_IMPL(swamp, CPU, m) {
  m.impl("any_nonfinite", &any_nonfinite);
  m.impl("grad_norm_and_check", &grad_norm_and_check);
  m.impl("mixed_precision_adamw_", &mixed_precision_adamw_);
  m.impl("foreach_lerp_", &foreach_lerp_);
  m.impl("foreach_zero_", &foreach_zero_);
  m.impl("wgrad_gemm_accum", &wgrad_gemm_accum);
}

TORCH_LIBRARY_IMPL(swamp, CompositeExplicitAutograd, m) {
  m.impl("any_nonfinite", &any_nonfinite_elsewhere);
}

TORCH_LIBRARY_IMPL(swamp, Meta, m) {
  m.impl("any_nonfinite", &AnyNonfinite::meta);
  m.impl("grad_norm_and_check", &Norm::meta);
  m.impl("mixed_precision_adamw_", &Adamw::meta);
  m.impl("foreach_lerp_", &Lerp::meta);
  m.impl("foreach_zero_", &Zero::meta);
  m.impl("wgrad_gemm_accum", &Wgrad::meta);
}

TORCH_LIBRARY_IMPL(swamp, ADInplaceOrView, m) {
  m.impl("grad_norm_and_check", &Norm::in_place);
  m.impl("mixed_precision_adamw_", &Adamw::in_place);
  m.impl("foreach_lerp_", &Lerp::in_place);
  m.impl("foreach_zero_", &Zero::in_place);
  m.impl("wgrad_gemm_accum", &Wgrad::in_place);
}

TORCH_LIBRARY_IMPL(swamp, Autograd, m) {
  m.impl("any_nonfinite", &AnyNonfinite::autograd);
  m.impl("grad_norm_and_check", &Norm::autograd);
  m.impl("mixed_precision_adamw_", &Adamw::autograd);
  m.impl("foreach_lerp_", &Lerp::autograd);
  m.impl("foreach_zero_", &Zero::autograd);
  m.impl("wgrad_gemm_accum", &Wgrad::autograd);
}

}  // namespace swamp::aten
