// What loading libswamp_aten registers with PyTorch's dispatcher.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#include <torch/version.h>

#include <string>

#include "master/aten/active.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

// What the operator was called before; both are registered.
constexpr const char* kAnyNonfiniteNames[] = {"any_nonfinite", "check_finite"};

at::Tensor any_nonfinite_meta(at::TensorList) {
  return at::empty({}, at::TensorOptions()
                           .dtype(at::ScalarType::Float)
                           .device(at::DeviceType::Meta));
}

#if TORCH_VERSION_MAJOR >= 2
// QuietOverride keeps one warning back while kernels are registered: that they
// take the place of PyTorch's, which is what the library is loaded for.
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
#endif

// A list without tensors has no device; nor have other devices a kernel.
at::Tensor any_nonfinite_elsewhere(at::TensorList tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensors.empty(),
                              "swamp::any_nonfinite takes strided CPU tensors");
  return any_nonfinite(tensors);
}

// The answer has no gradient.
at::Tensor any_nonfinite_autograd(at::TensorList tensors) {
  static const auto operation =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("swamp::any_nonfinite", "")
          .typed<at::Tensor(at::TensorList)>();
  const at::AutoDispatchBelowAutograd guard;
  return operation.call(tensors);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, m) {
#if TORCH_VERSION_MAJOR >= 2  // 1.13 has no kernels there
  QuietOverride handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
#endif
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale_kernel);
  m.impl("_amp_update_scale_", &update_scale_kernel);
}

TORCH_LIBRARY(swamp, m) {
  m.def("version() -> str", &version);
  m.def("info() -> str", &info);
  m.def("set_active(bool active) -> bool", &set_active);
  m.def("is_active() -> bool", &is_active);
  for (const std::string name : kAnyNonfiniteNames) {
    m.def((name + "(Tensor[] tensors) -> Tensor").c_str());
  }
}

TORCH_LIBRARY_IMPL(swamp, CPU, m) {
  for (const char* name : kAnyNonfiniteNames) m.impl(name, &any_nonfinite);
}

TORCH_LIBRARY_IMPL(swamp, CompositeExplicitAutograd, m) {
  for (const char* name : kAnyNonfiniteNames)
    m.impl(name, &any_nonfinite_elsewhere);
}

TORCH_LIBRARY_IMPL(swamp, Meta, m) {
  for (const char* name : kAnyNonfiniteNames) m.impl(name, &any_nonfinite_meta);
}

TORCH_LIBRARY_IMPL(swamp, Autograd, m) {
  for (const char* name : kAnyNonfiniteNames)
    m.impl(name, &any_nonfinite_autograd);
}

}  // namespace swamp::aten
