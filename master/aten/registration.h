// define() registers an operator swamp::* in one place: its schema, its kernel
// and its derivative. The kernel has the keys CPU and Meta; an operator
// without a result has nothing to do for Meta. The kernels of the other keys
// follow from the schema: ADInplaceOrView counts what the operator writes,
// Functionalize calls the operator that returns the new values, and an operator
// that does not return what it writes gets tensors with a lazy minus sign.
//
// PyTorch's own fallback for ADInplaceOrView counts only what an operator
// returns, so it does not serve those that write lists and return nothing.
#ifndef SWAMP_MASTER_ATEN_REGISTRATION_H_
#define SWAMP_MASTER_ATEN_REGISTRATION_H_

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "master/aten/tensor.h"

namespace swamp::aten {

// Derivative is what autograd does with an operator that has no class for it.
enum class Derivative {
  kRefused,  // a backward pass through the operator is an error
  kNone,     // no gradient of the results; written arguments must not
};

// require_no_grad() refuses to write a tensor that autograd tracks.
void require_no_grad(const at::Tensor& tensor);

// functionalize() is a kernel for the key Functionalize, which torch.compile
// needs for an operator that writes an argument and returns it. The operator
// that returns the new values is named _NAME, without the last underscore of
// NAME; its further arguments have their defaults.
void functionalize(const c10::OperatorHandle& written,
                   torch::jit::Stack* stack);

// Operator is the operator that was defined with a kernel.
template <auto kKernel>
struct Operator;

template <class Result, class... Arguments, Result (*kKernel)(Arguments...)>
struct Operator<kKernel> {
  static constexpr bool kHasResult = !std::is_void_v<Result>;

  // find() looks up the schema; returns whether it writes an argument.
  static bool find(const std::string& name) {
    handle_ = c10::Dispatcher::singleton()
                  .findSchemaOrThrow(name.c_str(), "")
                  .template typed<Result(Arguments...)>();
    bool any = false;
    for (std::size_t i = 0; i < sizeof...(Arguments); ++i) {
      const auto* alias = handle_->schema().arguments()[i].alias_info();
      is_written_[i] = alias != nullptr && alias->isWrite();
      any = any || is_written_[i];
    }
    return any;
  }

  static bool returns_written() {
    return handle_->schema().returns()[0].alias_info() != nullptr;
  }

  static Result call(Arguments... arguments) {
    return handle_->call(std::forward<Arguments>(arguments)...);
  }

  // The kernel for the keys CPU and Meta: what it calls has no gradient, and
  // counts no write.
  static Result kernel(Arguments... arguments) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return kKernel(std::forward<Arguments>(arguments)...);
  }

  static Result nothing(Arguments...) {}

  static Result without_gradient(Arguments... arguments) {
    for_each_written(require_no_grad, arguments...);
    const at::AutoDispatchBelowAutograd guard;
    return call(std::forward<Arguments>(arguments)...);
  }

  static Result count_writes(Arguments... arguments) {
    const auto below = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return call(arguments...);
    };
    if constexpr (std::is_void_v<Result>) {
      below();
      for_each_written(count_write, arguments...);
    } else {
      Result result = below();
      for_each_written(count_write, arguments...);
      return result;
    }
  }

  // differentiated() calls a class of torch::autograd, whose forward() has the
  // operator's arguments.
  template <class Function>
  static Result differentiated(Arguments... arguments) {
    auto results = Function::apply(std::forward<Arguments>(arguments)...);
    if constexpr (std::is_same_v<decltype(results), Result>) {
      return results;
    } else {
      return tuple_of(
          results, std::make_index_sequence<std::tuple_size<Result>::value>());
    }
  }

 private:
  template <std::size_t... kIndices>
  static Result tuple_of(const torch::autograd::variable_list& results,
                         std::index_sequence<kIndices...>) {
    return {results[kIndices]...};
  }

  template <class Visit>
  static void for_each_written(Visit visit, const Arguments&... arguments) {
    const bool* written = is_written_.data();
    const auto one = [&](const auto& argument) {
      using Argument = std::decay_t<decltype(argument)>;
      if (!*written++) return;
      if constexpr (std::is_same_v<Argument, at::Tensor>) {
        visit(argument);
      } else if constexpr (std::is_same_v<Argument, at::TensorList>) {
        for (const at::Tensor& tensor : argument) visit(tensor);
      }
    };
    (one(arguments), ...);
  }

  static inline std::optional<c10::TypedOperatorHandle<Result(Arguments...)>>
      handle_;
  static inline std::array<bool, sizeof...(Arguments)> is_written_{};
};

// call() calls the operator of a kernel through the dispatcher.
template <auto kKernel, class... Arguments>
auto call(Arguments&&... arguments) {
  return Operator<kKernel>::call(std::forward<Arguments>(arguments)...);
}

// define() with a kernel for the key Autograd, or a Derivative.
template <auto kKernel, auto kAutograd = Derivative::kRefused>
void define(torch::Library& library, const std::string& schema) {
  using Self = Operator<kKernel>;
  const std::string name = schema.substr(0, schema.find('('));
  const auto add = [&](c10::DispatchKey key, auto&& kernel) {
    library.impl(name.c_str(),
                 torch::dispatch(key, std::forward<decltype(kernel)>(kernel)));
  };
  library.def(schema.c_str());
  add(c10::DispatchKey::CPU, &Self::kernel);
  if constexpr (Self::kHasResult) {
    add(c10::DispatchKey::Meta, &Self::kernel);
  } else {
    add(c10::DispatchKey::Meta, &Self::nothing);
  }
  if constexpr (!std::is_same_v<decltype(kAutograd), Derivative>) {
    add(c10::DispatchKey::Autograd, kAutograd);
  } else if constexpr (kAutograd == Derivative::kNone) {
    add(c10::DispatchKey::Autograd, &Self::without_gradient);
  } else {
    add(c10::DispatchKey::Autograd,
        torch::autograd::autogradNotImplementedFallback());
  }
  if (!Self::find("swamp::" + name)) return;
  add(c10::DispatchKey::ADInplaceOrView, &Self::count_writes);
  if constexpr (Self::kHasResult) {
    if (Self::returns_written()) {
      add(c10::DispatchKey::Functionalize,
          torch::CppFunction::makeFromBoxedFunction<&functionalize>());
      return;
    }
  }
  // PyTorch's own kernel writes such a tensor only if it is also returned.
  add(c10::DispatchKey::Negative, torch::CppFunction::makeFallthrough());
}

// define() with the class of torch::autograd that has its gradient.
template <auto kKernel, class Function>
void define(torch::Library& library, const std::string& schema) {
  define<kKernel, &Operator<kKernel>::template differentiated<Function>>(
      library, schema);
}

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_REGISTRATION_H_
