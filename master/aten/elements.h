// One tensor, element by element: for what swamp's road does not take.
#ifndef SWAMP_MASTER_ATEN_ELEMENTS_H_
#define SWAMP_MASTER_ATEN_ELEMENTS_H_

#include <ATen/core/Tensor.h>

namespace swamp::aten {

// unscale_elements() does what the operator does, on PyTorch's threads, but in
// the order of the elements where several may lie at one address. Writes
// nothing when inv_scale is 1.
//
// Returns whether an element was inf or nan.
bool unscale_elements(const at::Tensor& tensor, float inv_scale);

// unscale_aliased() is for found_inf and inv_scale that lie in a tensor of the
// list or in each other: both are read and written when stock PyTorch's kernel
// does, which works on two vectors of 32 bytes at once.
void unscale_aliased(const at::Tensor& tensor, void* found_inf,
                     const void* inv_scale);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_ELEMENTS_H_
