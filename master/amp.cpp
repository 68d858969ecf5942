#include "swamp/amp.h"

#include <cmath>

#include "master/launch.h"

namespace swamp {

void amp_foreach_non_finite_check_and_unscale_(TensorList tensors,
                                               float& found_inf,
                                               const float& inv_scale,
                                               OverflowReport* report,
                                               Machine* machine) {
  const slave::UnscaleArgs args{inv_scale};
  // inv_scale == 1 changes nothing, so only check.
  const master::OperationTable operations =
      inv_scale == 1.0f ? master::operations_of<KernelFamily::check>(args)
                        : master::operations_of<KernelFamily::unscale>(args);
  const master::OperandList list{"tensors", tensors, "tensor_count"};
  const runtime::SlaveResult result =
      master::run_operations(&list, operations, machine);
  if (result.flagged_elements != 0) found_inf = 1.0f;
  if (report != nullptr) *report = master::overflow_report(result);
}

float amp_update_scale_(float& scale, std::int32_t& growth_tracker,
                        float found_inf, double growth_factor,
                        double backoff_factor,
                        std::int64_t growth_interval) noexcept {
  if (found_inf != 0.0f) {  // nan counts as found
    scale = static_cast<float>(scale * backoff_factor);
    growth_tracker = 0;
    return scale;
  }
  // By way of unsigned: the tracker of a run without growth may wrap.
  const auto successful = static_cast<std::int32_t>(
      static_cast<std::uint32_t>(growth_tracker) + 1u);
  if (successful != growth_interval) {
    growth_tracker = successful;
    return scale;
  }
  const auto grown = static_cast<float>(scale * growth_factor);
  if (std::isfinite(grown)) scale = grown;
  growth_tracker = 0;
  return scale;
}

}  // namespace swamp
