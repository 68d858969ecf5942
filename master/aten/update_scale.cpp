// at::_amp_update_scale_() of CPU tensors.
#include <c10/util/Exception.h>

#include "master/aten/tensor.h"
#include "swamp/amp.h"
#include "swamp/aten.h"

namespace swamp::aten {

at::Tensor& amp_update_scale_(at::Tensor& current_scale,
                              at::Tensor& growth_tracker,
                              const at::Tensor& found_inf, double growth_factor,
                              double backoff_factor,
                              std::int64_t growth_interval) {
  TORCH_CHECK(growth_tracker.is_cpu(), "growth_tracker must be a CPU tensor.");
  TORCH_CHECK(current_scale.is_cpu(), "current_scale must be a CPU tensor.");
  TORCH_CHECK(found_inf.is_cpu(), "found_inf must be a CPU tensor.");
  TORCH_CHECK(growth_tracker.numel() == 1,
              "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(current_scale.numel() == 1,
              "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::ScalarType::Int,
              "growth_tracker must be an int tensor.");
  TORCH_CHECK(current_scale.scalar_type() == at::ScalarType::Float,
              "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::ScalarType::Float,
              "found_inf must be a float tensor.");

  void* scale_data = mutable_data(current_scale);
  void* tracker_data = mutable_data(growth_tracker);
  auto scale = load<float>(scale_data);
  auto tracker = load<std::int32_t>(tracker_data);
  swamp::amp_update_scale_(scale, tracker, load<float>(const_data(found_inf)),
                           growth_factor, backoff_factor, growth_interval);
  store(scale_data, scale);
  store(tracker_data, tracker);
  return current_scale;
}

}  // namespace swamp::aten
