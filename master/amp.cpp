#include "swamp/amp.h"

#include <cmath>

#include "master/operation_run.h"
#include "slave/kernel_id.h"
#include "slave/unscale.h"

namespace swamp {

void amp_foreach_non_finite_check_and_unscale_(TensorList tensors,
                                               float& found_inf,
                                               const float& inv_scale,
                                               OverflowReport* report,
                                               Machine* machine) {
  Machine::Impl& impl = master::impl_of(machine);
  const slave::UnscaleArgs args{inv_scale};
  // inv_scale == 1 changes nothing, so only check.
  const bool check = inv_scale == 1.0f;
  const KernelId first = check ? slave::kernel_id::check_float16
                               : slave::kernel_id::unscale_float16;
  Operation operations[master::kComputeTypeCount];
  for (int type = 0; type < master::kComputeTypeCount; ++type) {
    operations[type] = Operation(static_cast<KernelId>(first + type), args);
    operations[type].add_stream(master::kScalarTypeBytes[type],
                                check ? Access::in : Access::inout);
  }

  master::Road& road = master::Road::of_this_thread();
  const master::SegmentList list =
      master::make_segments(tensors, operations, road.segment_memory());
  const runtime::SlaveResult result = road.run(impl, list);
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
