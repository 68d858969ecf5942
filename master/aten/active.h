#ifndef SWAMP_MASTER_ATEN_ACTIVE_H_
#define SWAMP_MASTER_ATEN_ACTIVE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace swamp::aten {

// unscale_kernel() and update_scale_kernel() are what the dispatcher calls:
// swamp's operators, or PyTorch's own kernels where swamp is not active.
void unscale_kernel(at::TensorList tensors, at::Tensor& found_inf,
                    const at::Tensor& inv_scale);
at::Tensor& update_scale_kernel(at::Tensor& current_scale,
                                at::Tensor& growth_tracker,
                                const at::Tensor& found_inf,
                                double growth_factor, double backoff_factor,
                                std::int64_t growth_interval);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_ACTIVE_H_
