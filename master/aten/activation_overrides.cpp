// PyTorch's operators that compute one activation, and some of their gradients:
// swamp's if is_switched(). Else, and for everything else, they are PyTorch's
// own kernels, whose float32 bits depend on the CPU. Gradients that PyTorch
// composes of other operators (of log and pow) stay so.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/elu_backward_cpu_dispatch.h>
#include <ATen/ops/elu_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp2_cpu_dispatch.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/expm1_cpu_dispatch.h>
#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/glu_backward_cpu_dispatch.h>
#include <ATen/ops/glu_cpu_dispatch.h>
#include <ATen/ops/log1p_cpu_dispatch.h>
#include <ATen/ops/log_cpu_dispatch.h>
#include <ATen/ops/log_sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/log_sigmoid_forward_cpu_dispatch.h>
#include <ATen/ops/mish_backward_cpu_dispatch.h>
#include <ATen/ops/mish_cpu_dispatch.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/rsqrt_cpu_dispatch.h>
#include <ATen/ops/sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/softplus_backward_cpu_dispatch.h>
#include <ATen/ops/softplus_cpu_dispatch.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "master/aten/activation.h"
#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/number_table.h"
#include "master/aten/overrides.h"
#include "master/aten/row_tensors.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using OptionalActivation = std::optional<ActivationOptions>;

// is_taken() returns whether an activation of x, or its gradient, is swamp's.
// Of 16 bits PyTorch's others, and those of few elements, are as fast, so only
// `reproducible` replaces them.
bool is_taken(const Tensor& x, Activation function, bool is_gradient = false) {
  const at::ScalarType type = x.scalar_type();
  if (!is_switched(type) || !is_plain(x, type) || x.numel() == 0) return false;
  if (is_reproducible()) return true;
  if (x.numel() < kLeastElements) return false;
  switch (function) {
    case Activation::gelu_tanh:
    case Activation::mish:
      return true;
    case Activation::gelu:
      return type == at::kHalf && is_gradient;
    case Activation::rsqrt:
      return type == at::kHalf && !is_gradient;
    case Activation::elu:
    case Activation::exp:
    case Activation::expm1:
    case Activation::log:
    case Activation::log1p:
    case Activation::pow:  // see Power
    case Activation::sigmoid:
    case Activation::silu:
    case Activation::softplus:
    case Activation::tanh:
      return !is_gradient;
    default:
      return false;
  }
}

bool are_taken(const Tensor& grad, const Tensor& x, Activation function) {
  return is_taken(x, function, true) && is_plain(grad, x.scalar_type()) &&
         grad.sizes() == x.sizes();
}

// Returns whether PyTorch converts a number to float.
bool fits_float(const at::Scalar& number) {
  return !number.isComplex() &&
         !(std::fabs(number.toDouble()) > std::numeric_limits<float>::max() &&
           std::isfinite(number.toDouble()));
}

// table_of() returns the table of an activation, or null. exp() takes as long to
// compute, and some powers less.
NumberTable* table_of(Activation function) {
  static std::array<NumberTable, SWAMP_POW_BASE + 1> tables;
  return function == Activation::exp || function == Activation::pow
             ? nullptr
             : &tables.at(static_cast<std::size_t>(function));
}

std::vector<double> numbers_of(const ActivationOptions& options) {
  return {options.beta, options.threshold, options.alpha, options.scale};
}

// Returns an activation with the strides that PyTorch's result has.
Tensor result_of(const Tensor& x, const ActivationOptions& options) {
  const auto compute = [&](const Tensor& all) {
    return activated(all, options);
  };
  if (NumberTable* const table = table_of(options.function)) {
    const auto y =
        table->look_up(x, x.scalar_type(), numbers_of(options), compute);
    if (y) return *y;
  }
  return as_result(activated(x, options), {x});
}
Tensor result_of(const Tensor& grad, const Tensor& x,
                 const ActivationOptions& options) {
  return as_result(gradient_of(grad, x, options), {grad, x});
}
// The same for a function whose result is contiguous in PyTorch.
Tensor contiguous_result(const Tensor& x, const ActivationOptions& options) {
  return with_strides_of(at::empty(x.sizes(), x.options()),
                         activated(x, options));
}

// Overrides is the kernels of PyTorch's operators that compute one activation:
// Function::options() has their arguments, and returns nothing for those that
// stay PyTorch's. If Function::kOfFloats, they take integers as floats, and an
// `out` of another dtype.
template <class Function, class... Args>
struct Overrides {
  template <Tensor (*kStock)(const Tensor&, Args...)>
  static Tensor value(const Tensor& input, Args... args) {
    const Tensor x = Function::kOfFloats ? as_float(input) : input;
    const OptionalActivation options = Function::options(x, args...);
    if (!options || !is_taken(x, options->function)) return kStock(x, args...);
    return result_of(x, *options);
  }
  template <Tensor& (*kStock)(Tensor&, Args...)>
  static Tensor& in_place(Tensor& x, Args... args) {
    const OptionalActivation options = Function::options(x, args...);
    if (!options || !is_taken(x, options->function)) return kStock(x, args...);
    at::assert_no_internal_overlap(x);
    NumberTable* const table = table_of(options->function);
    if (table == nullptr ||
        !table->look_up_(x, numbers_of(*options), [&](const Tensor& all) {
          return activated(all, *options);
        })) {
      activate_(x, *options);
    }
    return x;
  }
  template <Tensor& (*kStock)(const Tensor&, Args..., Tensor&)>
  static Tensor& out(const Tensor& input, Args... args, Tensor& out) {
    const Tensor x = Function::kOfFloats ? as_float(input) : input;
    const OptionalActivation options = Function::options(x, args...);
    if (!options || !is_taken(x, options->function) ||
        !(Function::kOfFloats ? can_hold(out, x.scalar_type())
                              : is_plain(out, x.scalar_type()))) {
      return kStock(x, args..., out);
    }
    return write_out(result_of(x, *options), {x}, out);
  }
  template <Tensor (*kStock)(const Tensor&, const Tensor&, Args...)>
  static Tensor gradient(const Tensor& grad, const Tensor& x, Args... args) {
    const OptionalActivation options = Function::options(x, args...);
    if (!options || !are_taken(grad, x, options->function))
      return kStock(grad, x, args...);
    return result_of(grad, x, *options);
  }
  template <Tensor& (*kStock)(const Tensor&, const Tensor&, Args..., Tensor&)>
  static Tensor& gradient_out(const Tensor& grad, const Tensor& x, Args... args,
                              Tensor& out) {
    const OptionalActivation options = Function::options(x, args...);
    if (!options || !are_taken(grad, x, options->function) ||
        !is_plain(out, x.scalar_type())) {
      return kStock(grad, x, args..., out);
    }
    return write_out(result_of(grad, x, *options), {grad, x}, out);
  }
};

template <Activation kFunction, bool kIsOfFloats = false, int kBeta = 1>
struct Plain {
  static constexpr bool kOfFloats = kIsOfFloats;
  static OptionalActivation options(const Tensor&) {
    return ActivationOptions{kFunction, kBeta};
  }
};
struct Gelu {
  static constexpr bool kOfFloats = false;
  static OptionalActivation options(const Tensor&,
                                    std::string_view approximate) {
    if (approximate == "none") return ActivationOptions{Activation::gelu};
    if (approximate == "tanh") return ActivationOptions{Activation::gelu_tanh};
    return {};
  }
};
struct Softplus {
  static constexpr bool kOfFloats = false;
  static OptionalActivation options(const Tensor&, const at::Scalar& beta,
                                    const at::Scalar& threshold) {
    if (beta.isComplex() || threshold.isComplex()) return {};
    return ActivationOptions{Activation::softplus, beta.to<float>(),
                             threshold.to<float>()};
  }
};
struct Elu {
  static constexpr bool kOfFloats = false;
  static OptionalActivation options(const Tensor&, const at::Scalar& alpha,
                                    const at::Scalar& scale,
                                    const at::Scalar& input_scale) {
    if (!fits_float(alpha) || !fits_float(scale) || !fits_float(input_scale)) {
      return {};
    }
    return ActivationOptions{Activation::elu,   input_scale.to<float>(), 20, 0,
                             alpha.to<float>(), scale.to<float>()};
  }
  // PyTorch's gradient at the result has the same bits on every CPU.
  template <Tensor (*kStock)(const Tensor&, const at::Scalar&,
                             const at::Scalar&, const at::Scalar&, bool,
                             const Tensor&)>
  static Tensor gradient(const Tensor& grad, const at::Scalar& alpha,
                         const at::Scalar& scale, const at::Scalar& input_scale,
                         bool is_result, const Tensor& x) {
    const OptionalActivation options =
        Elu::options(x, alpha, scale, input_scale);
    if (is_result || !options || !are_taken(grad, x, options->function)) {
      return kStock(grad, alpha, scale, input_scale, is_result, x);
    }
    return result_of(grad, x, *options);
  }
};

// PyTorch computes some powers by products and quotients, which have the same
// bits on every CPU, and roots (see AnyPower). Those of float16 take 5 to 20
// times as long as those of float32; those of bfloat16 that are two operations
// are rounded twice. Other powers are swamp's if `reproducible`.
struct Power {
  static constexpr bool kOfFloats = true;
  static OptionalActivation options(const Tensor& x,
                                    const at::Scalar& exponent) {
    if (!fits_float(exponent)) return {};
    const auto number = exponent.to<float>();
    if (number == 0 || number == 1) return {};
    const bool is_twice = number == 3 || number == -2;
    if (is_twice || number == 2 || number == -1) {
      if (x.scalar_type() != at::kHalf &&
          (!is_twice || x.scalar_type() != at::kBFloat16)) {
        return {};
      }
    } else if (number == -0.5f && is_half(x.scalar_type())) {
      return ActivationOptions{Activation::rsqrt};
    } else if (number == -0.5f || !is_reproducible()) {
      return {};
    }
    return ActivationOptions{Activation::pow, number};
  }
};
struct AnyPower {
  using Other = Overrides<Power, const at::Scalar&>;
  // Returns whether x^0.5 is at::sqrt(), which is rounded correctly on every
  // CPU: of 16 bits PyTorch's, otherwise swamp's.
  static bool is_root(const Tensor& x, const at::Scalar& exponent) {
    const at::ScalarType type = x.scalar_type();
    return !exponent.isComplex() && exponent.toDouble() == 0.5 &&
           (type == at::kHalf
                ? is_switched(type)
                : is_reproducible() &&
                      (is_real(type) || c10::isIntegralType(type, true)));
  }
  // Returns whether both are integers, whose power is one, too.
  static bool are_integers(const Tensor& x, const at::Scalar& exponent) {
    return c10::isIntegralType(x.scalar_type(), true) &&
           !exponent.isFloatingPoint();
  }
  template <Tensor (*kStock)(const Tensor&, const at::Scalar&)>
  static Tensor value(const Tensor& x, const at::Scalar& exponent) {
    if (are_integers(x, exponent)) return kStock(x, exponent);
    return is_root(x, exponent) ? at::sqrt(x)
                                : Other::value<kStock>(x, exponent);
  }
  template <Tensor& (*kStock)(Tensor&, const at::Scalar&)>
  static Tensor& in_place(Tensor& x, const at::Scalar& exponent) {
    return is_root(x, exponent) ? at::sqrt_(x)
                                : Other::in_place<kStock>(x, exponent);
  }
  template <Tensor& (*kStock)(const Tensor&, const at::Scalar&, Tensor&)>
  static Tensor& out(const Tensor& x, const at::Scalar& exponent, Tensor& out) {
    if (are_integers(x, exponent)) return kStock(x, exponent, out);
    return is_root(x, exponent) ? at::sqrt_outf(x, out)
                                : Other::out<kStock>(x, exponent, out);
  }
};

// PyTorch rounds the base to the type of the exponents.
struct BasePower {
  static OptionalActivation options(const at::Scalar& base,
                                    const Tensor& exponents) {
    if (!fits_float(base) || !is_taken(exponents, Activation::pow_base)) {
      return {};
    }
    auto number = base.to<float>();
    if (exponents.scalar_type() == at::kHalf) number = at::Half(number);
    if (exponents.scalar_type() == at::kBFloat16) number = at::BFloat16(number);
    return ActivationOptions{Activation::pow_base, number};
  }
  template <Tensor (*kStock)(const at::Scalar&, const Tensor&)>
  static Tensor value(const at::Scalar& base, const Tensor& exponents) {
    const Tensor x = floats(base, exponents);
    const OptionalActivation options = BasePower::options(base, x);
    return options ? contiguous_result(x, *options) : kStock(base, x);
  }
  template <Tensor& (*kStock)(const at::Scalar&, const Tensor&, Tensor&)>
  static Tensor& out(const at::Scalar& base, const Tensor& exponents,
                     Tensor& out) {
    const Tensor x = floats(base, exponents);
    const OptionalActivation options = BasePower::options(base, x);
    if (!options || !can_hold(out, x.scalar_type())) {
      return kStock(base, x, out);
    }
    return write_out(contiguous_result(x, *options), {x}, out);
  }

 private:
  static Tensor floats(const at::Scalar& base, const Tensor& exponents) {
    return base.isFloatingPoint() ? as_float(exponents) : exponents;
  }
};

// logsigmoid(x) is -softplus(-x). The buffer, which only PyTorch's gradient
// reads, is exp(-|x|).
struct LogSigmoid {
  static OptionalActivation options(const Tensor&, const Tensor&) {
    if (!is_reproducible()) return {};
    return ActivationOptions{Activation::softplus, -1,
                             std::numeric_limits<float>::infinity()};
  }
  template <std::tuple<Tensor, Tensor> (*kStock)(const Tensor&)>
  static std::tuple<Tensor, Tensor> value(const Tensor& x) {
    const OptionalActivation options = LogSigmoid::options(x, x);
    if (!options || !is_taken(x, options->function)) return kStock(x);
    return {contiguous_result(x, *options), buffer_of(x)};
  }
  template <std::tuple<Tensor&, Tensor&> (*kStock)(const Tensor&, Tensor&,
                                                   Tensor&)>
  static std::tuple<Tensor&, Tensor&> out(const Tensor& x, Tensor& out,
                                          Tensor& buffer) {
    const OptionalActivation options = LogSigmoid::options(x, x);
    if (!options || !is_taken(x, options->function) ||
        !is_plain(out, x.scalar_type()) || !is_plain(buffer, x.scalar_type())) {
      return kStock(x, out, buffer);
    }
    const Tensor result = contiguous_result(x, *options), saved = buffer_of(x);
    return {write_out(result, {x}, out), write_out(saved, {x}, buffer)};
  }

 private:
  static Tensor buffer_of(const Tensor& x) {
    return contiguous_result(x.abs().neg(), {Activation::exp});
  }
};

// The first half of a dimension times the sigmoid of the second: halves of the
// rows of a matrix.
struct Glu {
  template <Tensor (*kStock)(const Tensor&, std::int64_t)>
  static Tensor value(const Tensor& x, std::int64_t dim) {
    if (!has_halves(x, dim)) return kStock(x, dim);
    return computed(x, at::maybe_wrap_dim(dim, x.dim()));
  }
  template <Tensor& (*kStock)(const Tensor&, std::int64_t, Tensor&)>
  static Tensor& out(const Tensor& x, std::int64_t dim, Tensor& out) {
    if (!has_halves(x, dim) || !is_plain(out, x.scalar_type())) {
      return kStock(x, dim, out);
    }
    return write_out(computed(x, at::maybe_wrap_dim(dim, x.dim())), {x}, out);
  }
  template <Tensor (*kStock)(const Tensor&, const Tensor&, std::int64_t)>
  static Tensor gradient(const Tensor& grad, const Tensor& x,
                         std::int64_t dim) {
    if (!has_halves(x, dim, true) || !is_plain(grad, x.scalar_type()) ||
        grad.sizes() != sizes_of(x, dim)) {
      return kStock(grad, x, dim);
    }
    dim = at::maybe_wrap_dim(dim, x.dim());
    const Tensor from = row_major(x), gradient = row_major(grad),
                 dx = at::empty(x.sizes(), x.options());
    const Halves in(from, dim), to(dx, dim);
    translated([&] {
      swamp::gated_activation_backward(matrix_of(gradient, x.dim() - dim),
                                       in.second, in.first, to.second, to.first,
                                       in.options);
    });
    return dx;
  }

 private:
  struct Halves {
    Halves(const Tensor& tensor, std::int64_t dim)
        : first(matrix_of(tensor, tensor.dim() - dim)), second(first) {
      options.row_step = first.columns;
      second.columns = first.columns /= 2;
      second.data = static_cast<std::byte*>(second.data) +
                    first.columns * tensor.element_size();
    }
    Matrix first, second;
    ActivationOptions options{Activation::sigmoid};
  };
  static bool has_halves(const Tensor& x, std::int64_t dim,
                         bool is_gradient = false) {
    return is_taken(x, Activation::sigmoid, is_gradient) && dim >= -x.dim() &&
           dim < x.dim() && x.size(dim) % 2 == 0;
  }
  static std::vector<std::int64_t> sizes_of(const Tensor& x, std::int64_t dim) {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes[static_cast<std::size_t>(at::maybe_wrap_dim(dim, x.dim()))] /= 2;
    return sizes;
  }
  static Tensor computed(const Tensor& x, std::int64_t dim) {
    const Tensor from = row_major(x),
                 y = at::empty(sizes_of(x, dim), x.options());
    const Halves in(from, dim);
    translated([&] {
      swamp::gated_activation(in.second, in.first, matrix_of(y, y.dim() - dim),
                              in.options);
    });
    const std::int64_t half = y.size(dim);
    return as_result(y, {x.narrow(dim, 0, half), x.narrow(dim, half, half)});
  }
};

}  // namespace

// SWAMP_OVERRIDE() registers the kernels of one of PyTorch's operators.
#define SWAMP_OVERRIDE(Type, name)                   \
  library.impl(#name, &Type::value<&at::cpu::name>); \
  library.impl(#name ".out", &Type::out<&at::cpu::name##_outf>)
#define SWAMP_OVERRIDE_IN_PLACE(Type, name) \
  SWAMP_OVERRIDE(Type, name);               \
  library.impl(#name "_", &Type::in_place<&at::cpu::name##_>)
#define SWAMP_OVERRIDE_GRADIENT(Type, name)                                    \
  library.impl(#name "_backward", &Type::gradient<&at::cpu::name##_backward>); \
  library.impl(#name "_backward.grad_input",                                   \
               &Type::gradient_out<&at::cpu::name##_backward_outf>)

void register_activations(torch::Library& library) {
  using Silu = Overrides<Plain<Activation::silu>>;
  using Tanh = Overrides<Plain<Activation::tanh, true>>;
  using Sigmoid = Overrides<Plain<Activation::sigmoid, true>>;
  using Exp = Overrides<Plain<Activation::exp, true>>;
  using Log = Overrides<Plain<Activation::log, true>>;
  using Log1p = Overrides<Plain<Activation::log1p, true>>;
  using Expm1 = Overrides<Plain<Activation::expm1, true>>;
  using Rsqrt = Overrides<Plain<Activation::rsqrt, true>>;
  using Mish = Overrides<Plain<Activation::mish>>;
  using Exp2 = Overrides<Plain<Activation::pow_base, true, 2>>;
  using AnyElu =
      Overrides<Elu, const at::Scalar&, const at::Scalar&, const at::Scalar&>;
  using AnyGelu = Overrides<Gelu, std::string_view>;
  using AnySoftplus = Overrides<Softplus, const at::Scalar&, const at::Scalar&>;
  SWAMP_OVERRIDE_IN_PLACE(Silu, silu);
  SWAMP_OVERRIDE_GRADIENT(Silu, silu);
  SWAMP_OVERRIDE_IN_PLACE(AnyGelu, gelu);
  SWAMP_OVERRIDE_GRADIENT(AnyGelu, gelu);
  SWAMP_OVERRIDE_IN_PLACE(Tanh, tanh);
  SWAMP_OVERRIDE_GRADIENT(Tanh, tanh);
  SWAMP_OVERRIDE_IN_PLACE(Sigmoid, sigmoid);
  SWAMP_OVERRIDE_GRADIENT(Sigmoid, sigmoid);
  SWAMP_OVERRIDE(AnySoftplus, softplus);
  SWAMP_OVERRIDE_GRADIENT(AnySoftplus, softplus);
  SWAMP_OVERRIDE_IN_PLACE(Exp, exp);
  SWAMP_OVERRIDE_IN_PLACE(Exp2, exp2);
  SWAMP_OVERRIDE_IN_PLACE(Log, log);
  SWAMP_OVERRIDE_IN_PLACE(Log1p, log1p);
  SWAMP_OVERRIDE_IN_PLACE(Expm1, expm1);
  SWAMP_OVERRIDE_IN_PLACE(Rsqrt, rsqrt);
  SWAMP_OVERRIDE_IN_PLACE(Mish, mish);
  library.impl("mish_backward", &Mish::gradient<&at::cpu::mish_backward>);
  SWAMP_OVERRIDE_IN_PLACE(AnyElu, elu);
  library.impl("elu_backward", &Elu::gradient<&at::cpu::elu_backward>);
  library.impl("pow.Tensor_Scalar", &AnyPower::value<&at::cpu::pow>);
  library.impl("pow.Tensor_Scalar_out", &AnyPower::out<&at::cpu::pow_outf>);
  library.impl("pow_.Scalar", &AnyPower::in_place<&at::cpu::pow_>);
  library.impl("pow.Scalar", &BasePower::value<&at::cpu::pow>);
  library.impl("pow.Scalar_out", &BasePower::out<&at::cpu::pow_outf>);
  SWAMP_OVERRIDE(Glu, glu);
  library.impl("glu_backward", &Glu::gradient<&at::cpu::glu_backward>);
  library.impl("log_sigmoid_forward",
               &LogSigmoid::value<&at::cpu::log_sigmoid_forward>);
  library.impl("log_sigmoid_forward.output",
               &LogSigmoid::out<&at::cpu::log_sigmoid_forward_outf>);
  library.impl(
      "log_sigmoid_backward",
      &Overrides<LogSigmoid,
                 const Tensor&>::gradient<&at::cpu::log_sigmoid_backward>);
  library.impl("log_sigmoid_backward.grad_input",
               &Overrides<LogSigmoid, const Tensor&>::gradient_out<
                   &at::cpu::log_sigmoid_backward_outf>);
}

#undef SWAMP_OVERRIDE_GRADIENT
#undef SWAMP_OVERRIDE_IN_PLACE
#undef SWAMP_OVERRIDE

}  // namespace swamp::aten
