// What is known of gradients that were checked during backward, so that later
// passes that only read need not read them again.
#ifndef SWAMP_MASTER_ATEN_GRAD_CHECKS_H_
#define SWAMP_MASTER_ATEN_GRAD_CHECKS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace swamp::aten {

// NormRule is what the sums of squares of a tensor depend on, besides the
// tensor: the factor and the blocks of a grain of the whole list.
struct NormRule {
  float inv_scale;
  std::size_t grain_blocks;

  bool is(const NormRule& other) const noexcept;  // with the bits of inv_scale
};

// norm_rule() returns the rule for the norm of a list.
NormRule norm_rule(at::TensorList tensors, float inv_scale);

// GradCheck is what a pass over a gradient found.
struct GradCheck {
  bool found_inf = false;
  std::optional<NormRule> rule;  // of `squares`, if they were computed
  std::vector<double> squares;
};
using KnownCheck = std::shared_ptr<const GradCheck>;

// check_grad() checks a gradient for inf and nan, computes its sums of squares
// if there is a rule, and keeps both until the gradient is written or released.
// It ignores tensors that have less than a block, whose grains may be shared,
// and those that the norm does not take or that have no version.
void check_grad(const at::Tensor& grad, const std::optional<NormRule>& rule);

// known_checks() returns what is known of each tensor, null if nothing is; or
// nothing at all if that is so for all tensors. Writes that PyTorch does not
// count in the tensor's version are not noticed.
std::vector<KnownCheck> known_checks(at::TensorList tensors);

// forget_checks() is for operators that write tensors without increasing their
// version, as the unscale does, in PyTorch too.
void forget_checks();

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_GRAD_CHECKS_H_
