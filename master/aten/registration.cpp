#include "master/aten/registration.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <vector>

namespace swamp::aten {

void require_no_grad(const at::Tensor& tensor) {
  TORCH_CHECK(
      !(at::GradMode::is_enabled() && tensor.requires_grad()),
      tensor.is_leaf()
          ? "a leaf Variable that requires grad is being used in an "
            "in-place operation."
          : "a Variable that requires grad is being used in an in-place "
            "operation that has no derivative; use torch.no_grad().");
}

void functionalize(const c10::OperatorHandle& written,
                   torch::jit::Stack* stack) {
  namespace impl = at::functionalization::impl;
  const auto& own = written.schema().arguments();
  std::string name = written.schema().name();
  name.insert(name.rfind(':') + 1, "_");
  if (name.back() == '_') name.pop_back();
  const auto returning =
      c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");

  torch::jit::Stack arguments(
      stack->end() - static_cast<std::ptrdiff_t>(own.size()), stack->end());
  torch::jit::drop(*stack, own.size());
  at::Tensor target;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor()) continue;
    const at::Tensor tensor = arguments[i].toTensor();
    if (own[i].alias_info() != nullptr) target = tensor;
    if (!impl::isFunctionalTensor(tensor)) continue;
    impl::sync(tensor);
    arguments[i] = impl::from_functional_tensor(tensor);
  }
  const auto& all = returning.schema().arguments();
  for (std::size_t i = own.size(); i < all.size(); ++i) {
    arguments.push_back(*all[i].default_value());
  }
  {
    const at::AutoDispatchSkipFunctionalize guard;
    returning.callBoxed(&arguments);
    if (!impl::isFunctionalTensor(target)) {
      target.copy_(arguments[0].toTensor());
    }
  }
  if (impl::isFunctionalTensor(target)) {
    impl::replace_(target, arguments[0].toTensor());
    impl::commit_update(target);
    impl::sync(target);
  }
  torch::jit::push(*stack, target);
}

}  // namespace swamp::aten
