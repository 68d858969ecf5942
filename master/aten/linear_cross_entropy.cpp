// Cross entropy of a linear layer, without its logits: those of a chunk of rows
// at a time are computed, then their losses, then, in place, their gradient,
// then what it adds to the gradients of input, weight and bias. Each row's loss
// and gradient of the input do not depend on the chunks; the gradients of
// weight and bias are float32 sums over the chunks, in their order.
//
// The forward pass computes the gradients, because it has the logits, for a
// gradient of the loss of 1. They stay float32 until the backward pass knows
// the gradient of the loss, so that a loss scale does not come after a rounding
// to 16 bits. Without a reduction, rows have gradients of their own: the
// backward pass then computes the logits again.
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Mask = std::array<bool, 3>;  // the gradients of input, weight and bias
// The loss, and the three gradients, which are empty if they are not wanted.
using Result = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr const char* kName = "linear_cross_entropy";

// Logits of a chunk: enough rows to pay for reading the weight and its gradient
// once for each chunk.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 24;
constexpr std::int64_t kMinChunkRows = 64;

// float16 gradients of logits are multiplied by this while they are 16-bit:
// those of unlikely classes would be subnormal.
float scale_of(at::ScalarType type) {
  return type == at::kHalf ? 0x1p14f : 1.0f;
}

std::int64_t default_chunk_rows(std::int64_t classes) {
  return std::max(kMinChunkRows,
                  kChunkElements / std::max<std::int64_t>(classes, 1));
}

void require_arguments(const Tensor& input, const Tensor& weight,
                       const OptionalTensor& bias, const Tensor& target,
                       const CrossEntropy& options, std::int64_t chunk_rows) {
  require_rows(input, kName);
  const auto type = input.scalar_type();
  const auto require = [&](const Tensor& tensor, const char* name,
                           std::int64_t dimensions) {
    TORCH_CHECK(tensor.scalar_type() == type, kName, ": ", name,
                ": got the dtype ", c10::toString(tensor.scalar_type()),
                ", expected ", c10::toString(type), ", as input");
    TORCH_CHECK(tensor.device() == input.device(), kName, ": ", name,
                ": got the device ", tensor.device(), ", expected ",
                input.device());
    TORCH_CHECK(tensor.dim() == dimensions, kName, ": ", name, ": got ",
                tensor.dim(), " dimensions, expected ", dimensions);
  };
  TORCH_CHECK(input.dim() >= 1, kName,
              ": input: got 0 dimensions, expected at least 1");
  require(weight, "linear_weight", 2);
  TORCH_CHECK(weight.sym_size(1) == input.sym_size(-1), kName,
              ": linear_weight: got ", weight.sym_size(1),
              " columns, expected ", input.sym_size(-1), ", as input");
  if (is_defined(bias)) {
    require(*bias, "linear_bias", 1);
    TORCH_CHECK(bias->sym_size(0) == weight.sym_size(0), kName,
                ": linear_bias: got ", bias->sym_size(0),
                " elements, expected ", weight.sym_size(0),
                ", the rows of linear_weight");
  }
  TORCH_CHECK(target.scalar_type() == at::kLong, kName,
              ": target: got the dtype ", c10::toString(target.scalar_type()),
              ", expected Long");
  TORCH_CHECK(target.device() == input.device(), kName,
              ": target: got the device ", target.device(), ", expected ",
              input.device());
  TORCH_CHECK_VALUE(
      target.sym_sizes() ==
          input.sym_sizes().slice(0, static_cast<std::size_t>(input.dim()) - 1),
      kName, ": target: got the shape ", target.sym_sizes(),
      ", expected that of input without the last dimension, ",
      input.sym_sizes());
  TORCH_CHECK(options.reduction >= 0 && options.reduction <= 2, kName,
              ": reduction: got ", options.reduction,
              ", expected 0 (none), 1 (mean) or 2 (sum)");
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
              kName, ": label_smoothing: got ", options.label_smoothing,
              ", expected a number from 0 to 1");
  TORCH_CHECK(chunk_rows >= 0, kName, ": chunk_rows: got ", chunk_rows,
              ", expected a positive number, or 0 for the default");
}

// multiply() sets out to factor * (a * b) + self; self may be undefined, or
// out. On CPUs where swamp's product is slow it is PyTorch's, in float32. On
// CPUs with tiles for the dtype it is PyTorch's in that: logits as linear()
// computes them, and gradients of bfloat16, which rounds each product; those of
// float16 might overflow.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, float factor,
              const Tensor& self) {
  const at::ScalarType type = a.scalar_type();
  const bool by_tiles = prefers_tiles(type);
  if (by_tiles && factor == 1 && out.scalar_type() == type) {
    out.copy_(self.defined() ? at::addmm(self, a, b) : at::mm(a, b));
    return;
  }
  const bool is_rounded = by_tiles && type == at::kBFloat16;
  if (has_product() && !is_rounded) {
    ProductOptions options{factor, 1, nullptr};
    Matrices added;
    if (self.defined()) {
      added = matrices_of(self);
      options.self = &added;
    }
    product(matrices_of(out), matrices_of(a), matrices_of(b), options);
    return;
  }
  const at::ScalarType used = is_rounded ? type : at::kFloat;
  Tensor sum = at::mm(a.to(used), b.to(used)).to(at::kFloat).mul_(factor);
  if (self.defined()) sum.add_(self);
  out.copy_(sum);
}

// Loss is one call: contiguous operands and the results.
struct Loss {
  Tensor x, w, b, targets;
  Tensor losses, dx, dw, db;
  CrossEntropyOptions options;

  const std::int64_t* target_data() const {
    return values_of<std::int64_t>(targets);
  }

  // compute() sets the losses and the gradients, those of row i for the
  // gradient gradients[i] of its loss, and multiplies the gradients by
  // `factor`.
  void compute(const float* gradients, float factor, std::int64_t chunk_rows) {
    const std::int64_t rows = x.size(0), classes = w.size(0);
    const Tensor logits =
        at::empty({std::min(rows, chunk_rows), classes}, x.options());
    const Tensor lse = at::empty({2, logits.size(0)}, losses.options());
    const Tensor ones =
        db.defined() ? at::ones({1, logits.size(0)}, x.options()) : Tensor();
    auto* loss = data_of<float>(losses);
    auto* sums = data_of<float>(lse);
    auto* low = sums + logits.size(0);
    for (std::int64_t first = 0; first < rows; first += chunk_rows) {
      const std::int64_t count = std::min(chunk_rows, rows - first);
      const Tensor z = logits.narrow(0, 0, count);
      const Tensor part = x.narrow(0, first, count);
      multiply(z, part, w.t(), 1, b.defined() ? b.expand_as(z) : b);
      swamp::cross_entropy(matrix_of(z), target_data() + first, loss + first,
                           sums, low, options);
      if (!dx.defined() && !dw.defined() && !db.defined()) continue;
      cross_entropy_backward(matrix_of(z), target_data() + first, sums, low,
                             gradients + first, matrix_of(z), options);
      const auto before = [&](const Tensor& sum) {
        return first == 0 ? Tensor() : sum;
      };
      if (dx.defined()) {
        multiply(dx.narrow(0, first, count), z, w, factor, Tensor());
      }
      if (dw.defined()) multiply(dw, z.t(), part, factor, before(dw));
      if (db.defined()) {
        const Tensor sum = db.view({1, -1});
        multiply(sum, ones.narrow(1, 0, count), z, factor, before(sum));
      }
    }
  }
};

// linear_cross_entropy() is the forward pass; with row_gradients the backward
// pass without a reduction.
Result linear_cross_entropy(const Tensor& input, const Tensor& weight,
                            const OptionalTensor& bias, const Tensor& target,
                            const OptionalTensor& row_gradients,
                            std::int64_t reduction, std::int64_t ignore_index,
                            double label_smoothing, Mask mask,
                            std::int64_t chunk_rows) {
  const CrossEntropy options{reduction, ignore_index, label_smoothing};
  require_arguments(input, weight, bias, target, options, chunk_rows);
  const auto float32 = input.options().dtype(at::kFloat);
  const auto like = [&](const Tensor& tensor, bool is_wanted) {
    return is_wanted ? at::empty_symint(tensor.sym_sizes(), float32)
                     : at::empty({0}, float32);
  };
  const Tensor dx = like(input, mask[0]), dw = like(weight, mask[1]);
  const Tensor db =
      is_defined(bias) ? like(*bias, mask[2]) : like(input, false);
  Tensor losses = at::empty_symint(target.sym_sizes(), float32);
  if (input.is_meta()) {
    return {reduction == 0 ? losses : at::empty({}, float32), dx, dw, db};
  }

  Loss call;
  call.x = row_major(input.reshape({-1, input.size(-1)}));
  call.w = row_major(weight);
  if (is_defined(bias)) call.b = row_major(*bias);
  call.targets = row_major(target);
  call.losses = losses;
  if (mask[0]) call.dx = dx.view_as(call.x);
  if (mask[1]) call.dw = dw;
  if (mask[2] && is_defined(bias)) call.db = db;
  call.options.ignore_index = ignore_index;
  call.options.label_smoothing = label_smoothing;
  const std::int64_t classes = weight.size(0), rows = call.x.size(0);
  const auto* target_data = call.target_data();
  require_targets(target_data, rows, classes, ignore_index);
  const auto counted = static_cast<double>(
      rows - std::count(target_data, target_data + rows, ignore_index));
  if (rows == 0) {
    dw.zero_();
    db.zero_();
  }
  const float scale = scale_of(input.scalar_type());
  const double divisor = reduction == 1 ? counted : 1;
  std::vector<float> gradients(static_cast<std::size_t>(rows), scale);
  // If no row counts, the mean is nan, but its gradients are 0.
  float factor = static_cast<float>(1 / (scale * (divisor == 0 ? 1 : divisor)));
  if (is_defined(row_gradients)) {
    const Tensor given = row_major(row_gradients->to(at::kFloat));
    const auto* values = values_of<float>(given);
    std::copy(values, values + rows, gradients.begin());
    factor = 1;
  }
  const std::int64_t chunk =
      chunk_rows > 0 ? chunk_rows : default_chunk_rows(classes);
  translated([&] { call.compute(gradients.data(), factor, chunk); });
  if (reduction == 0) return {losses, dx, dw, db};
  double total = 0;
  const auto* values = values_of<float>(losses);
  for (std::int64_t i = 0; i < rows; ++i) {
    total += static_cast<double>(values[i]);
  }
  return {at::scalar_tensor(total / divisor, float32), dx, dw, db};
}

struct AutogradLinearCrossEntropy
    : torch::autograd::Function<AutogradLinearCrossEntropy> {
  static variable_list forward(AutogradContext* context, const Tensor& input,
                               const Tensor& weight, const OptionalTensor& bias,
                               const Tensor& target, const OptionalTensor&,
                               std::int64_t reduction,
                               std::int64_t ignore_index,
                               double label_smoothing, const Mask&,
                               std::int64_t chunk_rows) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Tensor b = defined_or_empty(bias);
    const Mask wanted{input.requires_grad(), weight.requires_grad(),
                      b.defined() && b.requires_grad()};
    const auto [loss, dx, dw, db] = call<&linear_cross_entropy>(
        input, weight, bias, target, OptionalTensor(), reduction, ignore_index,
        label_smoothing, reduction == 0 ? Mask{} : wanted, chunk_rows);
    if (reduction == 0) {
      context->save_for_backward({input, weight, b, target});
    } else {
      context->save_for_backward({dx, dw, db, target});
    }
    context->mark_non_differentiable({dx, dw, db});
    context->set_materialize_grads(false);  // zeros for dx, dw, db
    auto& number = context->saved_data;
    number["dtype"] = input.scalar_type();
    number["wanted"] = std::vector<bool>(wanted.begin(), wanted.end());
    number["reduction"] = reduction;
    number["ignore_index"] = ignore_index;
    number["label_smoothing"] = label_smoothing;
    number["chunk_rows"] = chunk_rows;
    return {loss, dx, dw, db};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(),
        "the second derivative of linear_cross_entropy is not implemented");
    const variable_list saved = context->get_saved_variables();
    const auto& number = context->saved_data;
    const auto wanted = number.at("wanted").toBoolList();
    const at::ScalarType type = number.at("dtype").toScalarType();
    variable_list result(10);
    if (number.at("reduction").toInt() == 0) {
      const Mask mask{wanted[0], wanted[1], wanted[2]};
      const auto [loss, dx, dw, db] = call<&linear_cross_entropy>(
          saved[0], saved[1], optional_of(saved[2]), saved[3],
          OptionalTensor(grads[0]), 0, number.at("ignore_index").toInt(),
          number.at("label_smoothing").toDouble(), mask,
          number.at("chunk_rows").toInt());
      const std::array<Tensor, 3> found{dx, dw, db};
      for (std::size_t i = 0; i < 3; ++i) {
        if (mask[i]) result[i] = found[i].to(type);
      }
      return result;
    }
    // Without a loss scale there is nothing to multiply, and no copy to make.
    const bool is_known =
        !at::isTensorSubclassLike(grads[0]) && grads[0].is_cpu();
    const float gradient = is_known ? grads[0].item<float>() : NAN;
    for (std::size_t i = 0; i < 3; ++i) {
      if (!wanted[i]) continue;
      Tensor found = saved[i];
      if (gradient != 1) found = at::mul(found, grads[0]);
      if (!std::isfinite(gradient)) {
        // Rows that do not count have no gradient, also of a sum divided by 0.
        const Tensor ignored = saved[3].eq(number.at("ignore_index").toInt());
        found = found.masked_fill(
            i == 0 ? ignored.unsqueeze(-1) : ignored.all(), 0);
      }
      result[i] = found.to(type);
    }
    return result;
  }
};

Result autograd_linear_cross_entropy(
    const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
    const Tensor& target, const OptionalTensor& row_gradients,
    std::int64_t reduction, std::int64_t ignore_index, double label_smoothing,
    Mask mask, std::int64_t chunk_rows) {
  if (!at::GradMode::is_enabled()) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call<&linear_cross_entropy>(input, weight, bias, target,
                                       row_gradients, reduction, ignore_index,
                                       label_smoothing, mask, chunk_rows);
  }
  const variable_list results = AutogradLinearCrossEntropy::apply(
      input, weight, bias, target, row_gradients, reduction, ignore_index,
      label_smoothing, mask, chunk_rows);
  return {results[0], results[1], results[2], results[3]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&linear_cross_entropy, &autograd_linear_cross_entropy>(
      m,
      "_linear_cross_entropy(Tensor input, Tensor weight, Tensor? bias, "
      "Tensor target, Tensor? row_gradients, int reduction, int ignore_index, "
      "float label_smoothing, bool[3] mask, int chunk_rows) -> "
      "(Tensor loss, Tensor dinput, Tensor dweight, Tensor dbias)");
}

}  // namespace swamp::aten
