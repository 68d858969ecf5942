// The operators swamp::attention and swamp::attention_backward, and the calls
// of libswamp that sdpa_override.cpp shares with them. Forward returns the
// output and the log of the sums of exponentials, from which backward computes
// the probabilities again. A mask that was expanded is copied without its
// expanded dimensions.
#include "swamp/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
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
using Scale = std::optional<double>;

// heads_of() takes a row_major() tensor [batch, heads, rows, columns].
Heads heads_of(const Tensor& tensor) {
  const auto size = [&](std::int64_t i) {
    return static_cast<std::size_t>(tensor.size(i));
  };
  return {
      const_cast<void*>(const_data(tensor)), size(0), size(1), size(2), size(3),
      *scalar_type(tensor.scalar_type())};
}

AttentionCausal causal_of(c10::string_view causal) {
  if (causal == "none") return AttentionCausal::none;
  if (causal == "top_left") return AttentionCausal::top_left;
  TORCH_CHECK_VALUE(causal == "bottom_right", "causal: got \"", causal,
                    "\", expected \"none\", \"top_left\" or \"bottom_right\"");
  return AttentionCausal::bottom_right;
}

// Options is the options of libswamp, and the mask that they refer to.
struct Options {
  Tensor mask;
  AttentionOptions options;

  Options(const OptionalTensor& given, AttentionCausal causal, Scale scale) {
    if (scale.has_value()) options.scale = static_cast<float>(*scale);
    options.causal = causal;
    if (!is_defined(given)) return;
    // A dimension that was expanded is the same for all: copy it once.
    mask = *given;
    for (std::int64_t i = 0; i < mask.dim(); ++i) {
      if (mask.stride(i) == 0 && mask.size(i) > 1) mask = mask.narrow(i, 0, 1);
    }
    mask = row_major(mask);
    const auto size = [&](std::int64_t from_last) {
      return from_last > mask.dim()
                 ? std::size_t{1}
                 : static_cast<std::size_t>(mask.size(mask.dim() - from_last));
    };
    options.mask = {const_data(mask), size(4), size(3),
                    size(2),          size(1), mask.scalar_type() == at::kBool,
                    kFloat32};
    if (!options.mask.is_bool) {
      options.mask.dtype = *scalar_type(mask.scalar_type());
    }
  }
};

// require_attention() throws PyTorch's errors. Sizes are checked here too,
// because libswamp sees neither the tensors of key Meta nor the dimensions of a
// mask that were expanded.
void require_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const OptionalTensor& mask, const char* operation) {
  require_rows(q, operation);
  const struct {
    const Tensor& tensor;
    const char* name;
  } tensors[] = {{q, "query"}, {k, "key"}, {v, "value"}};
  for (const auto& [tensor, name] : tensors) {
    TORCH_CHECK(tensor.dim() == 4, name, ": got ", tensor.dim(),
                " dimensions, expected 4: batch, heads, rows, channels");
    TORCH_CHECK(tensor.scalar_type() == q.scalar_type() &&
                    tensor.device() == q.device() &&
                    tensor.layout() == q.layout(),
                name, ": got ", c10::toString(tensor.scalar_type()), " on ",
                tensor.device(), ", expected ", c10::toString(q.scalar_type()),
                " on ", q.device(), ", as query");
    TORCH_CHECK(tensor.sym_size(0) == q.sym_size(0), name, ": got a batch of ",
                tensor.sym_size(0), ", expected ", q.sym_size(0), ", as query");
  }
  TORCH_CHECK(k.sym_size(3) == q.sym_size(3), "key: got ", k.sym_size(3),
              " channels, expected ", q.sym_size(3), ", as query");
  TORCH_CHECK(v.sym_size(1) == k.sym_size(1) && v.sym_size(2) == k.sym_size(2),
              "value: got the shape ", v.sym_sizes(),
              ", expected the heads and rows of key, ", k.sym_sizes());
  TORCH_CHECK(k.sym_size(1) > 0 && q.sym_size(1) % k.sym_size(1) == 0,
              "key: got ", k.sym_size(1), " heads, expected a divisor of ",
              q.sym_size(1), ", those of query");
  if (!is_defined(mask)) return;
  TORCH_CHECK(mask->scalar_type() == at::kBool ||
                  mask->scalar_type() == at::kFloat ||
                  mask->scalar_type() == q.scalar_type(),
              "mask: got the dtype ", c10::toString(mask->scalar_type()),
              ", expected Bool, Float or ", c10::toString(q.scalar_type()));
  TORCH_CHECK(mask->device() == q.device() && mask->layout() == q.layout(),
              "mask: got ", mask->layout(), " on ", mask->device(),
              ", expected ", q.layout(), " on ", q.device(), ", as query");
  TORCH_CHECK(mask->dim() >= 2 && mask->dim() <= 4, "mask: got ", mask->dim(),
              " dimensions, expected 2 to 4");
  const c10::SymInt sizes[] = {k.sym_size(2), q.sym_size(2), q.sym_size(1),
                               q.sym_size(0)};
  for (std::int64_t i = 1; i <= mask->dim(); ++i) {
    const c10::SymInt size = mask->sym_size(mask->dim() - i);
    TORCH_CHECK(size == 1 || size == sizes[i - 1], "mask: got the shape ",
                mask->sym_sizes(), ", expected one that broadcasts to ",
                q.sym_size(0), " x ", q.sym_size(1), " x ", q.sym_size(2),
                " x ", k.sym_size(2));
  }
}

// The kernels below are for the keys CPU and Meta.
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const OptionalTensor& mask, c10::string_view causal,
                          Scale scale) {
  require_attention(q, k, v, mask, "attention");
  return attention_of(q, k, v, mask, causal_of(causal), scale);
}

AttentionGradients attention_backward(const Tensor& grad, const Tensor& q,
                                      const Tensor& k, const Tensor& v,
                                      const Tensor& out, const Tensor& lse,
                                      const OptionalTensor& mask,
                                      c10::string_view causal, Scale scale) {
  require_attention(q, k, v, mask, "attention_backward");
  require_like(grad, "grad", out, "out");
  TORCH_CHECK(out.scalar_type() == q.scalar_type() && out.dim() == 4 &&
                  out.sym_size(0) == q.sym_size(0) &&
                  out.sym_size(1) == q.sym_size(1) &&
                  out.sym_size(2) == q.sym_size(2) &&
                  out.sym_size(3) == v.sym_size(3),
              "out: got ", c10::toString(out.scalar_type()), " of the shape ",
              out.sym_sizes(), ", expected the dtype and rows of query, ",
              q.sym_sizes(), ", with the channels of value");
  TORCH_CHECK(lse.scalar_type() == at::kFloat &&
                  lse.sym_sizes() == out.sym_sizes().slice(0, 3),
              "lse: got ", c10::toString(lse.scalar_type()), " of the shape ",
              lse.sym_sizes(), ", expected Float of ",
              out.sym_sizes().slice(0, 3));
  return attention_gradients(grad, q, k, v, out, lse, mask, causal_of(causal),
                             scale);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& q,
                               const Tensor& k, const Tensor& v,
                               const OptionalTensor& mask,
                               const std::string& causal, Scale scale) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, lse] = call<&attention>(q, k, v, mask, causal, scale);
    context->save_for_backward({q, k, v, out, lse, defined_or_empty(mask)});
    context->mark_non_differentiable({lse});
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto [dq, dk, dv] = call<&attention_backward>(
        grads[0], saved[0], saved[1], saved[2], saved[3], saved[4],
        optional_of(saved[5]), context->saved_data["causal"].toStringView(),
        context->saved_data["scale"].toOptional<double>());
    return {dq, dk, dv, Tensor(), Tensor(), Tensor()};
  }
};

AttentionResult autograd_attention(const Tensor& q, const Tensor& k,
                                   const Tensor& v, const OptionalTensor& mask,
                                   c10::string_view causal, Scale scale) {
  // Here, because forward() runs with gradients disabled.
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_defined(mask) || !mask->requires_grad() ||
          !at::GradMode::is_enabled(),
      "swamp::attention: got a mask that requires a gradient, expected one "
      "that does not; use torch's scaled_dot_product_attention");
  const variable_list results =
      AttentionFunction::apply(q, k, v, mask, std::string(causal), scale);
  return {results[0], results[1]};
}

}  // namespace

AttentionResult attention_of(const Tensor& q, const Tensor& k, const Tensor& v,
                             const OptionalTensor& mask, AttentionCausal causal,
                             Scale scale) {
  auto sizes = q.sym_sizes().vec();
  const Tensor lse = at::empty_symint({sizes[0], sizes[1], sizes[2]},
                                      q.options().dtype(at::kFloat));
  sizes[3] = v.sym_size(3);
  const Tensor out = at::empty_symint(sizes, q.options());
  if (q.is_meta() || lse.numel() == 0) return {out, lse};
  const Tensor query = row_major(q), key = row_major(k), value = row_major(v);
  const Options options(mask, causal, scale);
  auto* sums = data_of<float>(lse);
  mutable_data(out);
  translated([&] {
    swamp::attention(heads_of(query), heads_of(key), heads_of(value),
                     heads_of(out), sums, options.options);
  });
  return {out, lse};
}

AttentionGradients attention_gradients(const Tensor& grad, const Tensor& q,
                                       const Tensor& k, const Tensor& v,
                                       const Tensor& out, const Tensor& lse,
                                       const OptionalTensor& mask,
                                       AttentionCausal causal, Scale scale) {
  const auto like = [](const Tensor& x) {
    return at::empty_like(x, at::MemoryFormat::Contiguous);
  };
  const Tensor dq = like(q), dk = like(k), dv = like(v);
  if (q.is_meta()) return {dq, dk, dv};
  const Tensor g = row_major(grad), query = row_major(q), key = row_major(k),
               value = row_major(v), result = row_major(out),
               sums = row_major(lse);
  const Options options(mask, causal, scale);
  for (const Tensor& x : {dq, dk, dv}) mutable_data(x);
  translated([&] {
    swamp::attention_backward(heads_of(g), heads_of(query), heads_of(key),
                              heads_of(value), heads_of(result),
                              values_of<float>(sums), heads_of(dq),
                              heads_of(dk), heads_of(dv), options.options);
  });
  return {dq, dk, dv};
}

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&attention, &autograd_attention>(
      m,
      "attention(Tensor query, Tensor key, Tensor value, *, "
      "Tensor? mask=None, str causal=\"none\", float? scale=None) -> "
      "(Tensor out, Tensor lse)");
  define<&attention_backward>(
      m,
      "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, "
      "Tensor out, Tensor lse, *, Tensor? mask=None, str causal=\"none\", "
      "float? scale=None) -> (Tensor, Tensor, Tensor)");
}

}  // namespace swamp::aten
