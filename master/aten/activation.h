// Activations of tensors, for the operators swamp::* and for PyTorch's.
#ifndef SWAMP_MASTER_ATEN_ACTIVATION_H_
#define SWAMP_MASTER_ATEN_ACTIVATION_H_

#include <ATen/core/Tensor.h>

#include "swamp/activation.h"

namespace swamp::aten {

// Returns an activation of a tensor that is not empty, with the strides that
// PyTorch's result has.
at::Tensor activated(const at::Tensor& x, const ActivationOptions& options);

// Computes an activation in place.
void activate_(const at::Tensor& x, const ActivationOptions& options);

// Returns the gradient of x, or of the result x, if that is what
// activation_backward() reads.
at::Tensor gradient_of(const at::Tensor& grad, const at::Tensor& x,
                       const ActivationOptions& options);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_ACTIVATION_H_
