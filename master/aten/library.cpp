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

at::Tensor check_finite_meta(at::TensorList) {
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
at::Tensor check_finite_elsewhere(at::TensorList tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensors.empty(),
                              "swamp::check_finite takes strided CPU tensors");
  return check_finite(tensors);
}

// The answer has no gradient.
at::Tensor check_finite_autograd(at::TensorList tensors) {
  static const auto operation =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("swamp::check_finite", "")
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
  m.def("check_finite(Tensor[] tensors) -> Tensor");
}

TORCH_LIBRARY_IMPL(swamp, CPU, m) { m.impl("check_finite", &check_finite); }

TORCH_LIBRARY_IMPL(swamp, CompositeExplicitAutograd, m) {
  m.impl("check_finite", &check_finite_elsewhere);
}

TORCH_LIBRARY_IMPL(swamp, Meta, m) {
  m.impl("check_finite", &check_finite_meta);
}

TORCH_LIBRARY_IMPL(swamp, Autograd, m) {
  m.impl("check_finite", &check_finite_autograd);
}

}  // namespace swamp::aten
