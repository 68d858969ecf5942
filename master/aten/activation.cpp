// Activations: the operators swamp::activation and swamp::gated_activation, and
// what the kernels of PyTorch's operators compute.
#include "master/aten/activation.h"

#include <ATen/ops/chunk.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::pair<std::string_view, Activation> kFunctions[] = {
    {"silu", Activation::silu},
    {"gelu", Activation::gelu},
    {"gelu_tanh", Activation::gelu_tanh},
    {"tanh", Activation::tanh},
    {"sigmoid", Activation::sigmoid},
    {"relu", Activation::relu},
    {"relu_squared", Activation::relu_squared},
    {"softplus", Activation::softplus},
    {"exp", Activation::exp},
    {"log", Activation::log},
    {"log1p", Activation::log1p},
    {"expm1", Activation::expm1},
    {"rsqrt", Activation::rsqrt},
    {"mish", Activation::mish},
    {"elu", Activation::elu},
    {"pow", Activation::pow},
    {"pow_base", Activation::pow_base},
};

ActivationOptions options_of(std::string_view name, double beta = 1,
                             double threshold = 20, double alpha = 1,
                             double scale = 1) {
  for (const auto& [text, function] : kFunctions) {
    if (text == name) {
      return {
          function, static_cast<float>(beta),  static_cast<float>(threshold),
          0,        static_cast<float>(alpha), static_cast<float>(scale)};
    }
  }
  std::string known;
  for (const auto& [text, function] : kFunctions) {
    (known += known.empty() ? "" : ", ") += text;
  }
  TORCH_CHECK_VALUE(false, "function: got '", name, "', expected one of ",
                    known);
}

// with_graph() is the same of PyTorch's operators, in float32.
Tensor with_graph(const Tensor& x, const ActivationOptions& options) {
  switch (options.function) {
    case Activation::silu:
      return at::silu(x);
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::tanh:
      return at::tanh(x);
    case Activation::sigmoid:
      return at::sigmoid(x);
    case Activation::relu:
      return at::relu(x);
    case Activation::relu_squared:
      return at::relu(x).square();
    case Activation::softplus:
      return at::softplus(x, options.beta, options.threshold);
    case Activation::exp:
      return at::exp(x);
    case Activation::log:
      return at::log(x);
    case Activation::log1p:
      return at::log1p(x);
    case Activation::expm1:
      return at::expm1(x);
    case Activation::rsqrt:
      return at::rsqrt(x);
    case Activation::mish:
      return at::mish(x);
    case Activation::elu:
      return at::elu(x, options.alpha, options.scale, options.beta);
    case Activation::pow:
      return at::pow(x, options.beta);
    default:
      return at::pow(at::Scalar(options.beta), x);
  }
}

bool reads_result(Activation function) {
  return function == Activation::tanh || function == Activation::sigmoid ||
         function == Activation::exp || function == Activation::expm1 ||
         function == Activation::rsqrt;
}

// result_with_graph() is the gradient of an activation that reads_result().
Tensor result_with_graph(const Tensor& grad, const Tensor& y,
                         Activation function) {
  if (function == Activation::exp) return grad.mul(y);
  if (function == Activation::expm1) return grad.mul(y.add(1));
  if (function == Activation::rsqrt) return grad.mul(y.mul(y).mul(y).mul(-0.5));
  const Tensor one = at::ones({}, y.options());
  return function == Activation::tanh ? grad.mul(one.sub(y.mul(y)))
                                      : grad.mul(one.sub(y).mul(y));
}

// in_order() returns a tensor whose elements follow each other in memory, in
// any order of the dimensions: x, or a copy, with the strides that PyTorch's
// result has.
Tensor in_order(const Tensor& x) {
  return is_dense(x) && !is_lazy(x) &&
                 is_aligned(const_data(x), x.element_size())
             ? x
             : x.clone(at::MemoryFormat::Preserve);
}

// like() returns a tensor with the order in memory of another.
Tensor like(const Tensor& x, const Tensor& other) {
  if (has_order_of(x, other) && is_aligned(const_data(x), x.element_size())) {
    return x;
  }
  return at::empty_like(other).copy_(x);
}

// elements() returns a tensor that is in_order() as a column.
Matrix elements(const Tensor& x) {
  return {const_cast<void*>(const_data(x)), static_cast<std::size_t>(x.numel()),
          1, *scalar_type(x.scalar_type())};
}
Matrix written_elements(const Tensor& x) {
  mutable_data(x);
  return elements(x);
}

}  // namespace

Tensor activated(const Tensor& x, const ActivationOptions& options) {
  const Tensor from = in_order(x), y = at::empty_like(from);
  translated(
      [&] { swamp::activation(elements(from), written_elements(y), options); });
  return y;
}

void activate_(const Tensor& x, const ActivationOptions& options) {
  const Tensor to = in_order(x);
  translated(
      [&] { swamp::activation(elements(to), written_elements(to), options); });
  if (!to.is_same(x)) x.copy_(to);
}

Tensor gradient_of(const Tensor& grad, const Tensor& x,
                   const ActivationOptions& options) {
  const Tensor from = in_order(x), gradient = like(grad, from),
               dx = at::empty_like(from);
  translated([&] {
    swamp::activation_backward(elements(gradient), elements(from),
                               written_elements(dx), options);
  });
  return dx;
}

namespace {

// ---- The operators swamp::*

Tensor activation(const Tensor& x, std::string_view function, double beta,
                  double threshold, double alpha, double scale) {
  require_rows(x, "activation");
  const ActivationOptions options =
      options_of(function, beta, threshold, alpha, scale);
  if (x.is_meta() || x.numel() == 0) return at::empty_like(x);
  return activated(x, options);
}

Tensor activation_backward(const Tensor& grad, const Tensor& x,
                           std::string_view function, double beta,
                           double threshold, double alpha, double scale) {
  require_rows(x, "activation_backward");
  require_like(grad, "grad", x, "x");
  const ActivationOptions options =
      options_of(function, beta, threshold, alpha, scale);
  if (x.is_meta() || x.numel() == 0) return at::empty_like(x);
  return gradient_of(grad, x, options);
}

struct AutogradActivation : torch::autograd::Function<AutogradActivation> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        std::string_view function, double beta,
                        double threshold, double alpha, double scale) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Tensor y =
        call<&activation>(x, function, beta, threshold, alpha, scale);
    const bool of_result = reads_result(options_of(function).function);
    context->save_for_backward({of_result ? y : x});
    context->saved_data["function"] = std::string(function);
    context->saved_data["beta"] = beta;
    context->saved_data["threshold"] = threshold;
    context->saved_data["alpha"] = alpha;
    context->saved_data["scale"] = scale;
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto& data = context->saved_data;
    const std::string function = data.at("function").toStringRef();
    const double beta = data.at("beta").toDouble(),
                 threshold = data.at("threshold").toDouble(),
                 alpha = data.at("alpha").toDouble(),
                 scale = data.at("scale").toDouble();
    const ActivationOptions options =
        options_of(function, beta, threshold, alpha, scale);
    Tensor dx;
    if (!at::GradMode::is_enabled()) {
      dx = call<&activation_backward>(grads[0], saved[0], function, beta,
                                      threshold, alpha, scale);
    } else if (reads_result(options.function)) {
      dx = result_with_graph(grads[0].to(at::kFloat), saved[0].to(at::kFloat),
                             options.function)
               .to(grads[0].scalar_type());
    } else {
      dx = gradients_with_graph({saved[0]}, grads[0], [&](const auto& inputs) {
        return with_graph(inputs[0].to(at::kFloat), options)
            .to(grads[0].scalar_type());
      })[0];
    }
    return {dx, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// Gated is the matrices of a gated unit: two tensors, or the halves of one.
struct Gated {
  Gated(const Tensor& gate, const OptionalTensor& up)
      : first(row_major(gate)),
        second(is_defined(up) ? row_major(*up) : Tensor()) {
    gates = ups = matrix_of(first);
    if (second.defined()) {
      ups = matrix_of(second);
      return;
    }
    row_step = gates.columns;
    gates.columns = ups.columns = row_step / 2;
    ups.data = static_cast<std::byte*>(ups.data) +
               ups.columns * static_cast<std::size_t>(first.element_size());
  }
  Tensor first, second;
  Matrix gates, ups;
  std::size_t row_step = 0;
};

void require_gated(const Tensor& gate, const OptionalTensor& up,
                   const char* name) {
  require_rows(gate, name);
  TORCH_CHECK(gate.dim() >= 1, "gate: got a scalar, expected rows");
  if (is_defined(up)) {
    require_like(*up, "up", gate, "gate");
    return;
  }
  TORCH_CHECK(gate.sym_size(-1).guard_int(__FILE__, __LINE__) % 2 == 0,
              "gate: got rows of ", gate.sym_size(-1),
              " elements, expected an even number without up");
}

Tensor gated_activation(const Tensor& gate, const OptionalTensor& up,
                        std::string_view function) {
  require_gated(gate, up, "gated_activation");
  ActivationOptions options = options_of(function);
  auto sizes = gate.sym_sizes().vec();
  if (!is_defined(up)) sizes.back() = sizes.back() / 2;
  const Tensor y = gate.new_empty_symint(sizes);
  if (gate.is_meta() || y.numel() == 0) return y;
  const Gated in(gate, up);
  options.row_step = in.row_step;
  translated([&] {
    swamp::gated_activation(in.gates, in.ups, matrix_of(y), options);
  });
  return y;
}

// The gradient of the one tensor, or of both.
std::tuple<Tensor, Tensor> gated_activation_backward(
    const Tensor& grad, const Tensor& gate, const OptionalTensor& up,
    std::string_view function) {
  require_gated(gate, up, "gated_activation_backward");
  ActivationOptions options = options_of(function);
  require_like(grad, "grad", is_defined(up) ? gate : at::chunk(gate, 2, -1)[0],
               "gate");
  const auto empty = [](const Tensor& x) {
    return at::empty_like(x, at::MemoryFormat::Contiguous);
  };
  const Tensor dgate = empty(gate),
               dup = is_defined(up) ? empty(*up) : Tensor();
  if (gate.is_meta() || grad.numel() == 0) return {dgate, dup};
  const Gated in(gate, up), out(dgate, optional_of(dup));
  const Tensor gradient = row_major(grad);
  options.row_step = in.row_step;
  translated([&] {
    swamp::gated_activation_backward(matrix_of(gradient), in.gates, in.ups,
                                     out.gates, out.ups, options);
  });
  return {dgate, dup};
}

struct AutogradGated : torch::autograd::Function<AutogradGated> {
  static Tensor forward(AutogradContext* context, const Tensor& gate,
                        const OptionalTensor& up, std::string_view function) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({gate, defined_or_empty(up)});
    context->saved_data["function"] = std::string(function);
    return call<&gated_activation>(gate, up, function);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const std::string function =
        context->saved_data.at("function").toStringRef();
    if (at::GradMode::is_enabled()) {
      const variable_list found = gradients_with_graph(
          saved, grads[0], [&](const variable_list& inputs) {
            variable_list halves = inputs;
            if (!inputs[1].defined()) halves = at::chunk(inputs[0], 2, -1);
            return with_graph(halves[0].to(at::kFloat), options_of(function))
                .mul(halves[1].to(at::kFloat))
                .to(grads[0].scalar_type());
          });
      return {found[0], found[1], Tensor()};
    }
    const auto [dgate, dup] = call<&gated_activation_backward>(
        grads[0], saved[0], optional_of(saved[1]), function);
    return {dgate, dup, Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&activation, AutogradActivation>(
      m,
      "activation(Tensor x, str function=\"silu\", float beta=1., "
      "float threshold=20., float alpha=1., float scale=1.) -> Tensor");
  define<&activation_backward>(
      m,
      "activation_backward(Tensor grad, Tensor x, str function=\"silu\", "
      "float beta=1., float threshold=20., float alpha=1., float scale=1.) "
      "-> Tensor");
  define<&gated_activation, AutogradGated>(
      m,
      "gated_activation(Tensor gate, Tensor? up=None, "
      "str function=\"silu\") -> Tensor");
  define<&gated_activation_backward>(
      m,
      "gated_activation_backward(Tensor grad, Tensor gate, Tensor? up=None, "
      "str function=\"silu\") -> (Tensor, Tensor)");
}

}  // namespace swamp::aten
