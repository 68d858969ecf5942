// Megatron-LM's fused softmax operators. All are one function of libswamp, with
// a mask, a causal triangle or neither, and have one backward, which needs the
// result and the scale, because masked elements are 0 in the result; rows that
// are masked entirely may be uniform instead, and then need the mask.
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor empty_rows(const Tensor& x) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

// run() computes y, unless x is on the device meta.
Tensor run(const Tensor& x, const SoftmaxOptions& options) {
  Tensor y = empty_rows(x);
  return computed(y, [&] {
    const Tensor in = row_major(x);
    if (x.numel() == 0) return;
    swamp::scaled_softmax(matrix_of(in), matrix_of(y), options);
  });
}

// The kernels below are for the keys CPU and Meta. The texts of their errors
// are apex's, if it has the same check.
Tensor scaled_softmax(const Tensor& x, double scale) {
  require_rows(x, "scaled_softmax");
  TORCH_CHECK(x.dim() == 4, "expected 4D tensor");
  SoftmaxOptions options;
  options.scale = static_cast<float>(scale);
  return run(x, options);
}

Tensor scaled_masked_softmax(const Tensor& x, const Tensor& mask, double scale,
                             bool zero_masked_rows) {
  require_rows(x, "scaled_masked_softmax");
  TORCH_CHECK(x.dim() == 4, "expected 4D tensor");
  TORCH_CHECK(mask.dim() == 4, "expected 4D mask");
  TORCH_CHECK(
      mask.scalar_type() == at::kBool || mask.scalar_type() == at::kByte,
      "mask: got the dtype ", c10::toString(mask.scalar_type()),
      ", expected Bool or Byte");
  const bool fits =
      (mask.sym_size(0) == 1 || mask.sym_size(0) == x.sym_size(0)) &&
      mask.sym_size(1) == 1 && mask.sym_size(2) == x.sym_size(2) &&
      mask.sym_size(3) == x.sym_size(3);
  TORCH_CHECK(fits, "mask: got the shape ", mask.sym_sizes(),
              ", expected [b or 1, 1, sq, sk] for scores [b, np, sq, sk] of ",
              x.sym_sizes());
  TORCH_CHECK(mask.device() == x.device(), "mask: got the device ",
              mask.device(), ", expected ", x.device());
  SoftmaxOptions options;
  options.scale = static_cast<float>(scale);
  options.zero_masked_rows = zero_masked_rows;
  if (x.is_meta() || x.numel() == 0) return run(x, options);
  const Tensor bytes = row_major(mask);
  options.mask.data = values_of<std::uint8_t>(bytes);
  options.mask.batches = static_cast<std::size_t>(mask.size(0));
  options.mask.heads = static_cast<std::size_t>(x.size(1));
  options.mask.query_rows = static_cast<std::size_t>(x.size(2));
  return run(x, options);
}

Tensor scaled_upper_triang_masked_softmax(const Tensor& x, double scale) {
  require_rows(x, "scaled_upper_triang_masked_softmax");
  TORCH_CHECK(x.dim() == 3, "expected 3D tensor");
  TORCH_CHECK(x.sym_size(1) == x.sym_size(2),
              "causal mask is only for self attention: got ", x.sym_size(1),
              " rows and ", x.sym_size(2), " columns");
  SoftmaxOptions options;
  options.scale = static_cast<float>(scale);
  if (!x.is_meta()) {
    options.causal_rows = static_cast<std::size_t>(x.size(1));
  }
  return run(x, options);
}

// backward_into() sets dx, which may be the gradient.
void backward_into(const Tensor& grad, const Tensor& y, double scale,
                   bool causal, const Tensor& dx) {
  SoftmaxOptions options;
  options.scale = static_cast<float>(scale);
  if (causal) options.causal_rows = static_cast<std::size_t>(y.size(-2));
  const Tensor result = row_major(y);
  translated([&] {
    swamp::scaled_softmax_backward(matrix_of(grad), matrix_of(result),
                                   matrix_of(dx), options);
  });
}

void require_backward(const Tensor& grad, const Tensor& y) {
  require_rows(grad, "scaled_softmax_backward");
  require_like(y, "y", grad, "grad");
  TORCH_CHECK(y.dim() >= 1, "expected 4D tensor");
}

Tensor scaled_softmax_backward(Tensor grad, const Tensor& y, double scale) {
  require_backward(grad, y);
  if (grad.is_meta() || grad.numel() == 0) return grad;
  return in_place(grad, [&](const Tensor& target) {
    backward_into(target, y, scale, false, target);
  });
}

Tensor new_scaled_softmax_backward(const Tensor& grad, const Tensor& y,
                                   double scale, bool causal) {
  require_backward(grad, y);
  Tensor dx = empty_rows(grad);
  if (grad.is_meta() || grad.numel() == 0) return dx;
  backward_into(row_major(grad), y, scale, causal, dx);
  return dx;
}

// Softmax saves y and the scale. It also saves the mask if rows that are masked
// entirely become uniform, because these rows have no gradient.
struct Softmax : torch::autograd::Function<Softmax> {
  template <class Forward>
  static Tensor forward(AutogradContext* context, const Tensor& x, double scale,
                        bool causal, const OptionalTensor& uniform_mask,
                        Forward forward) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    Tensor y = forward(x);
    context->save_for_backward({y, defined_or_empty(uniform_mask)});
    context->saved_data["scale"] = scale;
    context->saved_data["causal"] = causal;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    Tensor dx = call<&new_scaled_softmax_backward>(
        grads[0], saved[0], context->saved_data["scale"].toDouble(),
        context->saved_data["causal"].toBool());
    if (saved[1].defined()) dx = dx.masked_fill_(saved[1].to(at::kBool), 0);
    return {dx, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

const OptionalTensor kNoMask;

Tensor autograd_scaled_softmax(const Tensor& x, double scale) {
  return Softmax::apply(x, scale, false, kNoMask, [=](const Tensor& scores) {
    return call<&scaled_softmax>(scores, scale);
  });
}

Tensor autograd_scaled_masked_softmax(const Tensor& x, const Tensor& mask,
                                      double scale, bool zero_masked_rows) {
  const OptionalTensor uniform_mask = zero_masked_rows ? kNoMask : mask;
  return Softmax::apply(x, scale, false, uniform_mask,
                        [=](const Tensor& scores) {
                          return call<&scaled_masked_softmax>(
                              scores, mask, scale, zero_masked_rows);
                        });
}

Tensor autograd_scaled_upper_triang_masked_softmax(const Tensor& x,
                                                   double scale) {
  return Softmax::apply(x, scale, true, kNoMask, [=](const Tensor& scores) {
    return call<&scaled_upper_triang_masked_softmax>(scores, scale);
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&scaled_softmax, &autograd_scaled_softmax>(
      m, "scaled_softmax(Tensor x, float scale) -> Tensor");
  define<&scaled_masked_softmax, &autograd_scaled_masked_softmax>(
      m,
      "scaled_masked_softmax(Tensor x, Tensor mask, float scale, *, "
      "bool zero_masked_rows=True) -> Tensor");
  define<&scaled_upper_triang_masked_softmax,
         &autograd_scaled_upper_triang_masked_softmax>(
      m, "scaled_upper_triang_masked_softmax(Tensor x, float scale) -> Tensor");
  define<&scaled_softmax_backward>(
      m,
      "scaled_softmax_backward(Tensor(a!) grad, Tensor y, float scale) -> "
      "Tensor(a!)");
  define<&new_scaled_softmax_backward>(
      m,
      "_scaled_softmax_backward(Tensor grad, Tensor y, float scale, "
      "bool causal=False) -> Tensor");
}

}  // namespace swamp::aten
