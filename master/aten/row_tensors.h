// What the operators of PyTorch tensors share: tensors as matrices, results in
// a caller's tensor, and backward passes that have a graph of their own.
#ifndef SWAMP_MASTER_ATEN_ROW_TENSORS_H_
#define SWAMP_MASTER_ATEN_ROW_TENSORS_H_

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <tuple>

#include "swamp/aten.h"
#include "swamp/attention.h"
#include "swamp/rows.h"

namespace swamp::aten {

// require_rows() throws unless x is a strided CPU or meta tensor of float16,
// bfloat16 or float32.
void require_rows(const at::Tensor& x, const char* operation);

// require_like() throws unless `tensor` has the sizes and dtype of `other`.
void require_like(const at::Tensor& tensor, const char* name,
                  const at::Tensor& other, const char* other_name);

// require_targets() throws PyTorch's error unless each target is one of the
// classes, or ignore_index.
void require_targets(const std::int64_t* targets, std::int64_t count,
                     std::int64_t classes, std::int64_t ignore_index);

// contiguous() returns x.contiguous(format). If that transposes matrices, as
// between channels first and channels last, swamp's kernel copies them, because
// PyTorch's copy takes several times as long.
at::Tensor contiguous(const at::Tensor& x,
                      at::MemoryFormat format = at::MemoryFormat::Contiguous);

// row_major() returns the tensor, or a copy with its values in memory,
// contiguous and aligned.
at::Tensor row_major(const at::Tensor& tensor);

// matrix_of() returns the matrix of a row_major() tensor, whose rows are its
// last dimension, or its last `dimensions`.
Matrix matrix_of(const at::Tensor& tensor, std::int64_t dimensions = 1);

// in_place() calls write(target) with row_major(tensor). If that is a copy, it
// then copies the target back to `tensor`.
template <class Write>
at::Tensor in_place(const at::Tensor& tensor, Write write) {
  const at::Tensor target = row_major(tensor);
  write(target);
  if (!target.is_same(tensor)) tensor.copy_(target);
  return tensor;
}

// write_out() copies a result to an argument `out`, with PyTorch's checks of
// its memory, and returns it.
at::Tensor& write_out(const at::Tensor& result,
                      std::initializer_list<at::Tensor> inputs,
                      at::Tensor& out);

// optional_of() returns no tensor for an undefined one, as a context saves it.
inline OptionalTensor optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}

inline at::Tensor defined_or_empty(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

inline bool is_defined(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

// Computes an operator's backward pass with create_graph=True: returns the
// gradients of the inputs that require one, by differentiating formula(inputs),
// so that they can be differentiated again. The formula consists of PyTorch's
// operators, in float32.
template <class Formula>
torch::autograd::variable_list gradients_with_graph(
    torch::autograd::variable_list inputs, const at::Tensor& grad,
    Formula formula) {
  torch::autograd::variable_list wanted;
  for (at::Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    input = input.view_as(input);  // two inputs may be the same tensor
    wanted.push_back(input);
  }
  const auto found = torch::autograd::grad({formula(inputs)}, wanted, {grad},
                                           true, true, true);
  auto next = found.begin();
  for (at::Tensor& input : inputs) {
    const bool is_wanted = input.defined() && input.requires_grad();
    input = is_wanted ? *next++ : at::Tensor();
  }
  return inputs;
}

// For the operators swamp::* and for PyTorch's operators that row_overrides.cpp
// replaces.
struct CrossEntropy {
  std::int64_t reduction = 1;  // 0: none, 1: mean, 2: sum
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

// The operator swamp::_cross_entropy: loss, lse, divisor of a mean.
std::tuple<at::Tensor, at::Tensor, at::Tensor> call_cross_entropy(
    const at::Tensor& logits, const at::Tensor& target,
    const OptionalTensor& weight, const CrossEntropy& options);

// A norm over the last `dimensions` of x; bias only for layer_norm.
using NormResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
NormResult norm_rows(const at::Tensor& x, std::int64_t dimensions,
                     const OptionalTensor& weight, const OptionalTensor& bias,
                     double eps, bool with_mean);
NormResult norm_rows_backward(const at::Tensor& grad, const at::Tensor& x,
                              std::int64_t dimensions, const at::Tensor& mean,
                              const at::Tensor& rstd,
                              const OptionalTensor& weight,
                              std::array<bool, 3> mask);

// An attention by libswamp, of tensors [batch, heads, rows, channels] that it
// takes; a mask has 2 to 4 dimensions. The results are contiguous.
using AttentionResult = std::tuple<at::Tensor, at::Tensor>;  // out, lse
using AttentionGradients = NormResult;                       // of q, k, v
AttentionResult attention_of(const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const OptionalTensor& mask,
                             AttentionCausal causal,
                             std::optional<double> scale);
AttentionGradients attention_gradients(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
    const OptionalTensor& mask, AttentionCausal causal,
    std::optional<double> scale);

// Calls the operator of a norm, whose gradient autograd records; returns y.
at::Tensor call_norm(const at::Tensor& x, const OptionalTensor& weight,
                     const OptionalTensor& bias, double eps, bool with_mean);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_ROW_TENSORS_H_
