// LayerNorm, RMSNorm and the residual connection. A row is the last dimensions
// of x, those of weight or bias. The backward pass takes the float32 statistics
// of the forward pass; with create_graph=True it is PyTorch's own formula,
// whose derivatives have derivatives.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using TwoTensors = std::tuple<Tensor, Tensor>;

// Vector is a weight or bias. It is converted to float32 if libswamp does not
// take its dtype together with that of x and of the other vector.
struct Vector {
  Tensor tensor;

  Vector(const OptionalTensor& vector, const OptionalTensor& other,
         const Tensor& x) {
    if (!is_defined(vector)) return;
    const bool plain = vector->scalar_type() == at::kFloat ||
                       vector->scalar_type() == x.scalar_type();
    const bool alike =
        !is_defined(other) || vector->scalar_type() == other->scalar_type();
    tensor = row_major(plain && alike ? *vector : vector->to(at::kFloat));
  }
  RowVector row() const {
    if (!tensor.defined()) return {};
    return {const_data(tensor), *scalar_type(tensor.scalar_type())};
  }
};

// require_norm() throws PyTorch's errors, and returns the number of dimensions
// of a row: that of weight or bias, or 1 if both are absent.
std::int64_t require_norm(const Tensor& x, const OptionalTensor& weight,
                          const OptionalTensor& bias, const char* operation) {
  require_rows(x, operation);
  const Tensor shape = is_defined(weight) ? *weight
                       : is_defined(bias) ? *bias
                                          : Tensor();
  if (!shape.defined()) {
    TORCH_CHECK(x.dim() >= 1, operation, ": expected at least 1 dimension");
    return 1;
  }
  TORCH_CHECK(shape.dim() >= 1,
              "Expected normalized_shape to be at least 1-dimensional, i.e., "
              "containing at least one element, but got normalized_shape = ",
              shape.sym_sizes());
  const std::int64_t dimensions = shape.dim();
  const bool fits =
      x.dim() >= dimensions &&
      x.sym_sizes().slice(static_cast<std::size_t>(x.dim() - dimensions)) ==
          shape.sym_sizes();
  TORCH_CHECK(fits, "Given normalized_shape=", shape.sym_sizes(),
              ", expected input with the same last dimensions, but got input "
              "of size",
              x.sym_sizes());
  TORCH_CHECK(!is_defined(bias) || bias->sym_sizes() == shape.sym_sizes(),
              "Expected bias to be of same shape as normalized_shape, but got "
              "bias of shape ",
              is_defined(bias) ? bias->sym_sizes() : shape.sym_sizes(),
              " and normalized_shape = ", shape.sym_sizes());
  for (const OptionalTensor& vector : {weight, bias}) {
    if (!is_defined(vector)) continue;
    TORCH_CHECK(vector->device() == x.device(), operation,
                ": got a weight or bias on ", vector->device(), ", expected ",
                x.device());
    require_rows(*vector, operation);
  }
  return dimensions;
}

// empty_statistics() returns a float32 tensor of PyTorch's shape for one value
// per row.
Tensor empty_statistics(const Tensor& x, std::int64_t dimensions) {
  auto sizes = x.sym_sizes().vec();
  for (std::int64_t i = x.dim() - dimensions; i < x.dim(); ++i) {
    sizes[static_cast<std::size_t>(i)] = 1;
  }
  return at::empty_symint(sizes, x.options().dtype(at::kFloat));
}

}  // namespace

NormResult norm_rows(const Tensor& x, std::int64_t dimensions,
                     const OptionalTensor& weight, const OptionalTensor& bias,
                     double eps, bool with_mean) {
  Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
  Tensor mean, rstd = empty_statistics(x, dimensions);
  if (with_mean) mean = at::empty_like(rstd);
  if (x.is_meta()) return {y, mean, rstd};
  if (x.numel() == 0) {  // libswamp has no rows without columns
    if (with_mean) mean.fill_(NAN);
    rstd.fill_(NAN);
    return {y, mean, rstd};
  }
  const Tensor in = row_major(x);
  const Vector w(weight, bias, x), b(bias, weight, x);
  NormOptions options;
  options.eps = eps;
  const Matrix rows = matrix_of(in, dimensions), to = matrix_of(y, dimensions);
  translated([&] {
    if (with_mean) {
      swamp::layer_norm(rows, w.row(), b.row(), to, data_of<float>(mean),
                        data_of<float>(rstd), options);
    } else {
      swamp::rms_norm(rows, w.row(), to, data_of<float>(rstd), options);
    }
  });
  return {y, mean, rstd};
}

NormResult norm_rows_backward(const Tensor& grad, const Tensor& x,
                              std::int64_t dimensions, const Tensor& mean,
                              const Tensor& rstd, const OptionalTensor& weight,
                              std::array<bool, 3> mask) {
  const auto float32 = x.options().dtype(at::kFloat);
  const auto vector = [&](bool wanted) {
    if (!wanted) return Tensor();
    return at::empty_symint(
        x.sym_sizes().slice(static_cast<std::size_t>(x.dim() - dimensions)),
        float32);
  };
  Tensor dx =
      mask[0] ? at::empty_like(x, at::MemoryFormat::Contiguous) : Tensor();
  Tensor dweight = vector(mask[1]), dbias = vector(mask[2]);
  if (!x.is_meta() && x.numel() == 0) {
    if (mask[1]) dweight.zero_();
    if (mask[2]) dbias.zero_();
  } else if (!x.is_meta()) {
    const Tensor in = row_major(x), dy = row_major(grad);
    const Tensor r = row_major(rstd.to(at::kFloat));
    const Vector w(weight, {}, x);
    const Matrix rows = matrix_of(in, dimensions);
    Matrix to = rows;
    to.data = mask[0] ? mutable_data(dx) : nullptr;
    translated([&] {
      if (mean.defined()) {
        const Tensor m = row_major(mean.to(at::kFloat));
        swamp::layer_norm_backward(matrix_of(dy, dimensions), rows,
                                   data_of<float>(m), data_of<float>(r),
                                   w.row(), to, data_of<float>(dweight),
                                   data_of<float>(dbias));
      } else {
        swamp::rms_norm_backward(matrix_of(dy, dimensions), rows,
                                 data_of<float>(r), w.row(), to,
                                 data_of<float>(dweight));
      }
    });
  }
  // The gradients of weight and bias are rounded once, to weight's dtype.
  if (is_defined(weight)) {
    if (mask[1]) dweight = dweight.to(weight->scalar_type());
    if (mask[2]) dbias = dbias.to(weight->scalar_type());
  }
  return {dx, dweight, dbias};
}

namespace {

// The kernels below are for the keys CPU and Meta.
NormResult layer_norm(const Tensor& x, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps) {
  const std::int64_t dimensions = require_norm(x, weight, bias, "layer_norm");
  return norm_rows(x, dimensions, weight, bias, eps, true);
}

TwoTensors rms_norm(const Tensor& x, const OptionalTensor& weight, double eps) {
  const std::int64_t dimensions = require_norm(x, weight, {}, "rms_norm");
  NormResult result = norm_rows(x, dimensions, weight, {}, eps, false);
  return {std::get<0>(result), std::get<2>(result)};
}

std::int64_t require_backward(const Tensor& grad, const Tensor& x,
                              const Tensor& mean, const Tensor& rstd,
                              const OptionalTensor& weight,
                              const char* operation) {
  const std::int64_t dimensions = require_norm(x, weight, {}, operation);
  require_like(grad, "grad", x, "x");
  c10::SymInt rows = 1;
  for (std::int64_t i = 0; i < x.dim() - dimensions; ++i) {
    rows = rows * x.sym_size(i);
  }
  TORCH_CHECK(
      (!mean.defined() || mean.sym_numel() == rows) && rstd.sym_numel() == rows,
      operation, ": got ", rstd.sym_numel(),
      " values in rstd or another number in mean, expected ", rows);
  return dimensions;
}

NormResult layer_norm_backward(const Tensor& grad, const Tensor& x,
                               const Tensor& mean, const Tensor& rstd,
                               const OptionalTensor& weight,
                               std::array<bool, 3> mask) {
  const std::int64_t dimensions =
      require_backward(grad, x, mean, rstd, weight, "layer_norm_backward");
  return norm_rows_backward(grad, x, dimensions, mean, rstd, weight, mask);
}

TwoTensors rms_norm_backward(const Tensor& grad, const Tensor& x,
                             const Tensor& rstd, const OptionalTensor& weight,
                             std::array<bool, 2> mask) {
  const std::int64_t dimensions =
      require_backward(grad, x, {}, rstd, weight, "rms_norm_backward");
  NormResult result = norm_rows_backward(grad, x, dimensions, {}, rstd, weight,
                                         {mask[0], mask[1], false});
  return {std::get<0>(result), std::get<1>(result)};
}

// wanted() returns which of x, weight and bias need a gradient. The context
// does not count absent ones.
std::array<bool, 3> wanted(const AutogradContext& context, bool with_weight,
                           bool with_bias) {
  return {context.needs_input_grad(0),
          with_weight && context.needs_input_grad(1),
          with_bias && context.needs_input_grad(with_weight ? 2 : 1)};
}

// norm_with_graph() returns the gradients of x, weight and bias in a backward
// pass with create_graph=True. formula(x, sizes, weight, bias) consists of
// PyTorch's operators; its tensors are float32.
template <class Formula>
variable_list norm_with_graph(const Tensor& x, const Tensor& weight,
                              const Tensor& bias, const Tensor& grad,
                              Formula formula) {
  const std::int64_t dimensions = weight.defined() ? weight.dim()
                                  : bias.defined() ? bias.dim()
                                                   : 1;
  const auto wide = [](const Tensor& vector) {
    return vector.defined() ? OptionalTensor(vector.to(at::kFloat))
                            : OptionalTensor();
  };
  return gradients_with_graph(
      {x, weight, bias}, grad, [&](const variable_list& inputs) {
        return formula(inputs[0].to(at::kFloat),
                       x.sym_sizes().slice(
                           static_cast<std::size_t>(x.dim() - dimensions)),
                       wide(inputs[1]), wide(inputs[2]))
            .to(x.scalar_type());
      });
}

// Calls layer_norm if `with_mean`; else rms_norm, which takes no bias.
NormResult call_norms(const Tensor& x, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, bool with_mean) {
  if (with_mean) return call<&layer_norm>(x, weight, bias, eps);
  const auto [y, rstd] = call<&rms_norm>(x, weight, eps);
  return {y, Tensor(), rstd};
}

Tensor formula_of(const Tensor& x, c10::SymIntArrayRef sizes,
                  const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps, bool with_mean) {
  std::vector<std::int64_t> last(sizes.size());
  std::iota(last.begin(), last.end(), -static_cast<std::int64_t>(sizes.size()));
  const Tensor rest = with_mean ? x - x.mean(last, true) : x;
  Tensor y = rest * (rest.square().mean(last, true) + eps).rsqrt();
  if (is_defined(weight)) y = y * *weight;
  return is_defined(bias) ? y + *bias : y;
}

// It saves x, the statistics, weight and bias, which have the dimensions of a
// row. Without them, a row has one dimension.
struct Norm : torch::autograd::Function<Norm> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps,
                               bool with_mean) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [y, mean, rstd] = call_norms(x, weight, bias, eps, with_mean);
    context->save_for_backward(
        {x, mean, rstd, defined_or_empty(weight), defined_or_empty(bias)});
    context->saved_data["eps"] = eps;
    if (!with_mean) {
      context->mark_non_differentiable({rstd});
      return {y, rstd};
    }
    context->mark_non_differentiable({mean, rstd});
    return {y, mean, rstd};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &mean = saved[1], &rstd = saved[2];
    const OptionalTensor weight = optional_of(saved[3]);
    variable_list found(5);
    if (at::GradMode::is_enabled()) {
      const double eps = context->saved_data["eps"].toDouble();
      const variable_list some = norm_with_graph(
          x, saved[3], saved[4], grads[0], [&](const auto&... arguments) {
            return formula_of(arguments..., eps, mean.defined());
          });
      std::copy(some.begin(), some.end(), found.begin());
      return found;
    }
    const std::array<bool, 3> mask =
        wanted(*context, saved[3].defined(), saved[4].defined());
    if (mean.defined()) {
      std::tie(found[0], found[1], found[2]) =
          call<&layer_norm_backward>(grads[0], x, mean, rstd, weight, mask);
    } else {
      std::tie(found[0], found[1]) = call<&rms_norm_backward>(
          grads[0], x, rstd, weight, std::array<bool, 2>{mask[0], mask[1]});
    }
    return found;
  }
};

NormResult autograd_layer_norm(const Tensor& x, const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps) {
  const variable_list found = Norm::apply(x, weight, bias, eps, true);
  return {found[0], found[1], found[2]};
}

TwoTensors autograd_rms_norm(const Tensor& x, const OptionalTensor& weight,
                             double eps) {
  const variable_list found =
      Norm::apply(x, weight, OptionalTensor(), eps, false);
  return {found[0], found[1]};
}

Tensor residual_add_(Tensor residual, const Tensor& x,
                     const OptionalTensor& bias) {
  constexpr const char* kName = "residual_add_";
  require_rows(x, kName);
  TORCH_CHECK(residual.scalar_type() == at::kFloat, "residual: got the dtype ",
              c10::toString(residual.scalar_type()), ", expected Float");
  TORCH_CHECK(residual.sym_sizes() == x.sym_sizes(), "residual: got the shape ",
              residual.sym_sizes(), ", expected ", x.sym_sizes(), ", as x");
  TORCH_CHECK(residual.device() == x.device(), "residual: got the device ",
              residual.device(), ", expected ", x.device());
  if (is_defined(bias)) {
    require_rows(*bias, kName);
    TORCH_CHECK(
        bias->dim() == 1 && x.dim() >= 1 && bias->sym_size(0) == x.sym_size(-1),
        "bias: got the shape ", bias->sym_sizes(),
        ", expected one value for each column of x, ", x.sym_sizes());
  }
  if (x.is_meta() || x.numel() == 0) return residual;
  const Tensor in = row_major(x);
  const Vector b(bias, {}, x);
  const std::int64_t dimensions = x.dim() == 0 ? 0 : 1;
  return in_place(residual, [&](const Tensor& target) {
    mutable_data(target);
    translated([&] {
      swamp::residual_add_(matrix_of(target, dimensions),
                           matrix_of(in, dimensions), b.row());
    });
  });
}

Tensor new_residual_add(Tensor residual, const Tensor& x,
                        const OptionalTensor& bias) {
  return residual_add_(residual.clone(at::MemoryFormat::Contiguous), x, bias);
}

struct ResidualAdd : torch::autograd::Function<ResidualAdd> {
  static Tensor forward(AutogradContext* context, const Tensor& residual,
                        const Tensor& x, const OptionalTensor& bias) {
    // The write is not counted here, because mark_dirty() counts it.
    const at::AutoDispatchBelowADInplaceOrView guard;
    call<&residual_add_>(residual, x, bias);
    context->mark_dirty({residual});
    context->saved_data["x"] = x.scalar_type();
    if (is_defined(bias)) context->saved_data["bias"] = bias->scalar_type();
    return residual;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Tensor& grad = grads[0];
    const auto& types = context->saved_data;
    Tensor dx, dbias;
    if (context->needs_input_grad(1)) {
      dx = grad.to(types.at("x").toScalarType());
    }
    if (types.count("bias") != 0 && context->needs_input_grad(2)) {
      dbias = grad.dim() == 1 ? grad : grad.flatten(0, -2).sum(0);
      dbias = dbias.to(types.at("bias").toScalarType());
    }
    return {grad, dx, dbias};
  }
};

Tensor autograd_residual_add_(Tensor residual, const Tensor& x,
                              const OptionalTensor& bias) {
  TORCH_CHECK(!(at::GradMode::is_enabled() && residual.requires_grad() &&
                residual.is_leaf()),
              "a leaf Variable that requires grad is being used in an in-place "
              "operation.");
  ResidualAdd::apply(residual, x, bias);
  return residual;
}

}  // namespace

Tensor call_norm(const Tensor& x, const OptionalTensor& weight,
                 const OptionalTensor& bias, double eps, bool with_mean) {
  return std::get<0>(call_norms(x, weight, bias, eps, with_mean));
}

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&layer_norm, &autograd_layer_norm>(
      m,
      "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> "
      "(Tensor y, Tensor mean, Tensor rstd)");
  define<&layer_norm_backward>(
      m,
      "layer_norm_backward(Tensor grad, Tensor x, Tensor mean, Tensor rstd, "
      "Tensor? weight, bool[3] mask) -> (Tensor, Tensor, Tensor)");
  define<&rms_norm, &autograd_rms_norm>(
      m,
      "rms_norm(Tensor x, Tensor? weight, float eps) -> "
      "(Tensor y, Tensor rstd)");
  define<&rms_norm_backward>(
      m,
      "rms_norm_backward(Tensor grad, Tensor x, Tensor rstd, Tensor? weight, "
      "bool[2] mask) -> (Tensor, Tensor)");
  define<&residual_add_, &autograd_residual_add_>(
      m,
      "residual_add_(Tensor(a!) residual, Tensor x, Tensor? bias=None) -> "
      "Tensor(a!)");
  define<&new_residual_add>(
      m,
      "_residual_add(Tensor residual, Tensor x, Tensor? bias=None) -> Tensor");
}

}  // namespace swamp::aten
