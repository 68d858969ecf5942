// What loading libswamp_aten registers with PyTorch's dispatcher: swamp's
// kernels for PyTorch's two operators, and the operators swamp::*.
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_cpu_dispatch.h>
#include <ATen/ops/_amp_update_scale_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <string>

#include "master/aten/overrides.h"
#include "master/aten/registration.h"
#include "master/aten/step.h"
#include "runtime/variables.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

// This is a flag, because a change of the dispatcher's table would free a
// kernel that another thread may be about to call.
std::atomic<bool> active{true};

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

// For a list without tensors, which has no device, and for other devices.
at::Tensor any_nonfinite_elsewhere(at::TensorList tensors, bool saturated) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensors.empty(),
                              "swamp::any_nonfinite takes strided CPU tensors");
  return any_nonfinite(tensors, saturated);
}

}  // namespace

bool set_active(bool value) { return active.exchange(value); }

bool is_active() { return active.load(std::memory_order_relaxed); }

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  QuietOverride handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale);
  m.impl("_amp_update_scale_", &update_scale);
  register_products(m);
  register_convolution(m);
  register_attention(m);
  register_rows(m);
  register_activations(m);
  register_arithmetic(m);
  register_pointwise(m);
  register_channels(m);
  register_row_loops(m);
  register_comparisons(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) {
  register_composite_products(m);
  register_composite_rows(m);
}

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
  m.def("set_reproducible(bool active) -> bool", &set_reproducible);
  m.def("is_reproducible() -> bool", &is_reproducible);
  m.def("set_unreproducible(int value) -> int", &set_unreproducible);
  m.def("set_attention(bool active) -> bool", &set_attention);
  m.def("is_attention() -> bool", &is_attention);
  constexpr auto kNone = Derivative::kNone;
  define<&unscale_, kNone>(
      m,
      "unscale_(Tensor(a!)[] grads, Tensor(b!) found_inf, Tensor inv_scale) "
      "-> ()");
  define<&any_nonfinite, kNone>(
      m, "any_nonfinite(Tensor[] tensors, bool saturated=False) -> Tensor");
  m.impl("any_nonfinite",
         torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                         &any_nonfinite_elsewhere));
  register_steps(m);
  define<&wgrad_gemm_accum, kNone>(
      m,
      "wgrad_gemm_accum(Tensor input, Tensor grad_output, "
      "Tensor(a!) main_grad) -> ()");
  register_step_lists(m);
}

}  // namespace swamp::aten
