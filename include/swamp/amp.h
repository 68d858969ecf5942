#ifndef SWAMP_AMP_H_
#define SWAMP_AMP_H_

#include <cstdint>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

// OverflowReport says where inf/nan was found: the lowest (tensor, flat index)
// in list order, and how much there was. element_count == 0: nothing found, the
// rest is 0.
struct OverflowReport {
  std::uint64_t tensor = 0;
  std::uint64_t index = 0;
  std::uint64_t tensor_count = 0;
  std::uint64_t element_count = 0;
};

// amp_foreach_non_finite_check_and_unscale_() multiplies every element of every
// tensor by inv_scale, in place, and sets found_inf to 1.0f if an incoming
// element is inf or nan; equal to PyTorch's CPU operator bit for bit:
//
//   for (t : tensors) for (x : t) {
//     if (!isfinite(x)) found_inf = 1.0f;       // the value before the
//     multiply if (inv_scale != 1.0f) x = round_to_dtype(opmath(x) *
//     inv_scale);
//   }
//
// found_inf is never cleared. inv_scale == 1 only reads. Dtypes may be mixed;
// arrays must not overlap. `report`, if not null, is filled. `machine` null
// means Machine::default_machine(). Any thread may call. Throws Error, before
// anything is written, for an unknown dtype, null data with a count, a count
// whose bytes overflow, or data not aligned to its element, and
// SWAMP_UNSUPPORTED for a float8 dtype; the text names the tensor's index.
SWAMP_API void amp_foreach_non_finite_check_and_unscale_(
    TensorList tensors, float& found_inf, const float& inv_scale,
    OverflowReport* report = nullptr, Machine* machine = nullptr);

// amp_update_scale_() moves the loss scale as PyTorch's _amp_update_scale_ and
// returns the new scale: backed off when found_inf is not 0, grown after
// growth_interval clean calls in a row unless that would make it infinite.
// Products are formed in double and rounded once. Checks nothing.
SWAMP_API float amp_update_scale_(float& scale, std::int32_t& growth_tracker,
                                  float found_inf, double growth_factor,
                                  double backoff_factor,
                                  std::int64_t growth_interval) noexcept;

}  // namespace swamp

#endif  // SWAMP_AMP_H_
