// The unscale of one tensor, element by element, for tensors that the kernels
// do not take: misaligned ones, short rows, and elements that share memory.
#ifndef SWAMP_MASTER_ATEN_FALLBACK_H_
#define SWAMP_MASTER_ATEN_FALLBACK_H_

#include <ATen/core/Tensor.h>

namespace swamp::aten {

// unscale_elements() multiplies every element by inv_scale, or only reads if
// that is 1. It runs on PyTorch's threads, but on one, in the order of the
// elements, if several may lie at one address.
//
// Returns whether an element was inf or nan.
bool unscale_elements(const at::Tensor& tensor, float inv_scale);

// unscale_aliased() is for a list in which found_inf or inv_scale shares memory
// with a tensor or with the other. It reads and writes both at the same moments
// as PyTorch's own kernel, which works on two vectors of 32 bytes at a time.
void unscale_aliased(const at::Tensor& tensor, void* found_inf,
                     const void* inv_scale);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_FALLBACK_H_
