// Cross entropy of rows of logits: the loss is float32, and the gradient is
// applied in float32 before the one rounding. Forward returns the log of the
// sums of exponentials, lse, and the divisor of a mean, from which backward
// computes the probabilities again, in place or not, and for a part of the
// classes: then the sums are those of all ranks. lse has two numbers for each
// row, the second is what rounding the first to float32 lost; backward also
// takes the first alone.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Result = std::tuple<Tensor, Tensor, Tensor>;

// Part is the classes of the columns: [first, first + columns) of `classes`.
struct Part {
  std::int64_t first = 0;
  std::int64_t classes = -1;  // -1: the columns
  bool megatron_smoothing = false;
};

// require_arguments() throws PyTorch's errors.
void require_arguments(const Tensor& logits, const Tensor& target,
                       const OptionalTensor& weight,
                       const CrossEntropy& options) {
  require_rows(logits, "cross_entropy");
  TORCH_CHECK(
      target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
      "expected target dtype to be Long or Byte, but got ",
      c10::toString(target.scalar_type()));
  TORCH_CHECK(target.device() == logits.device(), "target: got the device ",
              target.device(), ", expected ", logits.device());
  TORCH_CHECK(options.reduction >= 0 && options.reduction <= 2,
              "reduction: got ", options.reduction,
              ", expected 0 (none), 1 (mean) or 2 (sum)");
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
              "label_smoothing must be between 0.0 and 1.0. Got: ",
              options.label_smoothing);
  TORCH_CHECK(logits.dim() == target.dim() + 1, "logits: got ", logits.dim(),
              " dimensions, expected ", target.dim() + 1,
              ", one more than target has");
  for (std::int64_t i = 0; i < target.dim(); ++i) {
    TORCH_CHECK_VALUE(logits.sym_size(i) == target.sym_size(i),
                      "Expected input batch_size (", logits.sym_size(i),
                      ") to match target batch_size (", target.sym_size(i),
                      ").");
  }
  if (!is_defined(weight)) return;
  TORCH_CHECK(weight->dim() == 1 && weight->sym_size(0) == logits.sym_size(-1),
              "weight tensor should be defined either for all ",
              logits.sym_size(-1),
              " classes or no classes but got weight tensor of shape: ",
              weight->sym_sizes());
}

// Call is the arguments of libswamp's functions.
struct Call {
  Tensor logits, targets, weights;
  VocabularyPart part;
  CrossEntropyOptions options;

  Call(const Tensor& x, const Tensor& target, const OptionalTensor& weight,
       const CrossEntropy& from, const Part& classes = {})
      : logits(row_major(x)), targets(row_major(target.to(at::kLong))) {
    part.first = classes.first;
    part.classes = static_cast<std::size_t>(
        classes.classes < 0 ? x.size(-1) : classes.classes);
    options.ignore_index = from.ignore_index;
    options.label_smoothing = from.label_smoothing;
    options.z_loss = from.z_loss;
    options.megatron_smoothing = classes.megatron_smoothing;
    if (is_defined(weight)) {
      weights = row_major(weight->to(at::kFloat));
      options.class_weights = values_of<float>(weights);
    }
    require_targets(target_data(), targets.numel(),
                    static_cast<std::int64_t>(part.classes),
                    options.ignore_index);
  }
  const std::int64_t* target_data() const {
    return values_of<std::int64_t>(targets);
  }
};

Result new_cross_entropy(const Tensor& logits, const Tensor& target,
                         const OptionalTensor& weight, std::int64_t reduction,
                         std::int64_t ignore_index, double label_smoothing,
                         double z_loss) {
  const CrossEntropy options{reduction, ignore_index, label_smoothing, z_loss};
  require_arguments(logits, target, weight, options);
  const auto float32 = logits.options().dtype(at::kFloat);
  Tensor losses = at::empty_like(target, float32, at::MemoryFormat::Contiguous);
  auto sizes = target.sym_sizes().vec();
  sizes.insert(sizes.begin(), 2);
  Tensor lse = at::empty_symint(sizes, float32);
  if (logits.is_meta()) {
    return {reduction == 0 ? losses : at::empty({}, float32), lse,
            at::empty({}, float32.dtype(at::kDouble))};
  }
  const Call call(logits, target, weight, options);
  auto* sums = data_of<float>(lse);
  const CrossEntropyTotal total = translated([&] {
    return swamp::cross_entropy(matrix_of(call.logits), call.target_data(),
                                data_of<float>(losses), sums,
                                sums + target.numel(), call.options);
  });
  const Tensor divisor = at::full({}, total.weight, float32.dtype(at::kDouble));
  if (reduction == 0) return {losses, lse, divisor};
  const double loss = reduction == 1 ? total.loss / total.weight : total.loss;
  return {at::full({}, loss, float32), lse, divisor};
}

// has_low() returns whether lse has both numbers.
bool has_low(const Tensor& lse, const Tensor& target) {
  return lse.dim() == target.dim() + 1;
}

void require_backward(const Tensor& grad, const Tensor& logits,
                      const Tensor& target, const Tensor& lse,
                      const Tensor& divisor, const OptionalTensor& weight,
                      const CrossEntropy& options) {
  require_arguments(logits, target, weight, options);
  const c10::SymInt numbers =
      has_low(lse, target) ? 2 * target.sym_numel() : target.sym_numel();
  TORCH_CHECK(lse.scalar_type() == at::kFloat && lse.sym_numel() == numbers,
              "lse: got ", lse.sym_sizes(), " of ",
              c10::toString(lse.scalar_type()), ", expected Float of ",
              target.sym_sizes(), ", or with 2 before");
  TORCH_CHECK(options.reduction == 0 ? grad.sym_numel() == target.sym_numel()
                                     : grad.sym_numel() == 1,
              "grad: got the shape ", grad.sym_sizes(),
              ", expected that of the loss");
  TORCH_CHECK(options.reduction != 1 || divisor.sym_numel() == 1,
              "divisor: got the shape ", divisor.sym_sizes(),
              ", expected one element");
}

// backward_into() sets dx, which may be call.logits.
void backward_into(const Call& call, const Tensor& grad, const Tensor& lse,
                   const Tensor& divisor, std::int64_t reduction,
                   const Tensor& dx) {
  const Tensor sums = row_major(lse);
  const auto* high = values_of<float>(sums);
  const float* low =
      has_low(lse, call.targets) ? high + call.targets.numel() : nullptr;
  // The gradient of each row's loss.
  Tensor gradients;
  if (reduction == 0) {
    gradients = row_major(grad.to(at::kFloat));
  } else {
    const double divide = reduction == 1 ? divisor.item<double>() : 1;
    gradients = at::full(call.targets.sizes(), grad.item<double>() / divide,
                         sums.options());
  }
  translated([&] {
    vocab_parallel_cross_entropy_backward(
        call.part, matrix_of(call.logits), call.target_data(), high, low,
        values_of<float>(gradients), matrix_of(dx), call.options);
  });
}

Tensor cross_entropy_backward(const Tensor& grad, Tensor logits,
                              const Tensor& target, const Tensor& lse,
                              const Tensor& divisor, std::int64_t reduction,
                              std::int64_t ignore_index,
                              double label_smoothing) {
  const CrossEntropy options{reduction, ignore_index, label_smoothing};
  require_backward(grad, logits, target, lse, divisor, {}, options);
  if (logits.is_meta()) return logits;
  return in_place(logits, [&](const Tensor& x) {
    backward_into(Call(x, target, {}, options), grad, lse, divisor, reduction,
                  x);
  });
}

Tensor new_cross_entropy_backward(
    const Tensor& grad, const Tensor& logits, const Tensor& target,
    const Tensor& lse, const Tensor& divisor, std::int64_t reduction,
    std::int64_t ignore_index, double label_smoothing,
    const OptionalTensor& weight, double z_loss, std::int64_t first_class,
    std::int64_t classes, bool megatron_smoothing) {
  const CrossEntropy options{reduction, ignore_index, label_smoothing, z_loss};
  require_backward(grad, logits, target, lse, divisor, weight, options);
  Tensor dx = at::empty_like(logits, at::MemoryFormat::Contiguous);
  if (logits.is_meta()) return dx;
  const Part part{first_class, classes, megatron_smoothing};
  backward_into(Call(logits, target, weight, options, part), grad, lse, divisor,
                reduction, dx);
  return dx;
}

// float32_loss() is the loss composed of PyTorch's operators, whose derivatives
// have derivatives. at::cross_entropy_loss() may be swamp's.
Tensor float32_loss(const Tensor& logits, const Tensor& target,
                    const Tensor& weight, const Tensor& divisor,
                    const CrossEntropy& options) {
  const Tensor x =
      logits.to(at::kFloat).reshape_symint({-1, logits.sym_size(-1)});
  const Tensor t = target.to(at::kLong).flatten();
  Tensor losses = at::compositeimplicitautograd::cross_entropy_loss_symint(
      x, t,
      weight.defined() ? OptionalTensor(weight.to(at::kFloat))
                       : OptionalTensor(),
      0, options.ignore_index, options.label_smoothing);
  if (options.z_loss != 0) {
    losses = losses + (x.logsumexp(1).square() * options.z_loss)
                          .masked_fill(t.eq(options.ignore_index), 0);
  }
  if (options.reduction == 0) return losses.view_symint(target.sym_sizes());
  return options.reduction == 1 ? losses.sum() / divisor.to(at::kFloat)
                                : losses.sum();
}

struct AutogradCrossEntropy : torch::autograd::Function<AutogradCrossEntropy> {
  static variable_list forward(AutogradContext* context, const Tensor& logits,
                               const Tensor& target,
                               const OptionalTensor& weight,
                               std::int64_t reduction,
                               std::int64_t ignore_index,
                               double label_smoothing, double z_loss) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [loss, lse, divisor] =
        call<&new_cross_entropy>(logits, target, weight, reduction,
                                 ignore_index, label_smoothing, z_loss);
    context->save_for_backward(
        {logits, target, lse, divisor, defined_or_empty(weight)});
    context->mark_non_differentiable({lse, divisor});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["label_smoothing"] = label_smoothing;
    context->saved_data["z_loss"] = z_loss;
    return {loss, lse, divisor};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto& number = context->saved_data;
    const CrossEntropy options{number.at("reduction").toInt(),
                               number.at("ignore_index").toInt(),
                               number.at("label_smoothing").toDouble(),
                               number.at("z_loss").toDouble()};
    Tensor dx;
    if (at::GradMode::is_enabled()) {
      dx = gradients_with_graph({saved[0]}, grads[0], [&](const auto& inputs) {
        return float32_loss(inputs[0], saved[1], saved[4], saved[3], options);
      })[0];
    } else {
      dx = call<&new_cross_entropy_backward>(
          grads[0], saved[0], saved[1], saved[2], saved[3], options.reduction,
          options.ignore_index, options.label_smoothing, optional_of(saved[4]),
          options.z_loss, 0, -1, false);
    }
    return {dx, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits,
                                         const Tensor& target,
                                         std::int64_t reduction,
                                         std::int64_t ignore_index,
                                         double label_smoothing) {
  const Result result = call_cross_entropy(
      logits, target, {}, {reduction, ignore_index, label_smoothing});
  return {std::get<0>(result), std::get<1>(result).select(0, 0)};
}

}  // namespace

Result call_cross_entropy(const Tensor& logits, const Tensor& target,
                          const OptionalTensor& weight,
                          const CrossEntropy& options) {
  return call<&new_cross_entropy>(logits, target, weight, options.reduction,
                                  options.ignore_index, options.label_smoothing,
                                  options.z_loss);
}

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  // No kernel for any key, because it calls swamp::_cross_entropy.
  m.def(
      "cross_entropy(Tensor logits, Tensor target, *, int reduction=1, "
      "int ignore_index=-100, float label_smoothing=0.0) -> "
      "(Tensor loss, Tensor lse)",
      &cross_entropy);
  define<&cross_entropy_backward>(
      m,
      "cross_entropy_backward(Tensor grad, Tensor(a!) logits, Tensor target, "
      "Tensor lse, Tensor divisor, int reduction, int ignore_index, "
      "float label_smoothing) -> Tensor(a!)");
  define<&new_cross_entropy, AutogradCrossEntropy>(
      m,
      "_cross_entropy(Tensor logits, Tensor target, Tensor? weight, "
      "int reduction, int ignore_index, float label_smoothing, float z_loss) "
      "-> (Tensor loss, Tensor lse, Tensor divisor)");
  define<&new_cross_entropy_backward>(
      m,
      "_cross_entropy_backward(Tensor grad, Tensor logits, Tensor target, "
      "Tensor lse, Tensor divisor, int reduction, int ignore_index, "
      "float label_smoothing, Tensor? weight=None, float z_loss=0.0, "
      "int first_class=0, int classes=-1, bool megatron_smoothing=False) -> "
      "Tensor");
}

}  // namespace swamp::aten
