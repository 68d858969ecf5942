/// @file
/// The two operators of mixed-precision training, equal to PyTorch's on CPUs.
#ifndef SWAMP_AMP_H_
#define SWAMP_AMP_H_

#include <cstdint>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// OverflowReport is where inf/nan was found. If element_count is 0, nothing
/// was found and the other fields are 0. Indices are 0-based.
struct OverflowReport {
  std::uint64_t tensor = 0;         ///< first tensor of the list with inf/nan
  std::uint64_t index = 0;          ///< flat index of its first inf/nan
  std::uint64_t tensor_count = 0;   ///< tensors with inf/nan
  std::uint64_t element_count = 0;  ///< inf/nan elements in the whole list
};

/// amp_foreach_non_finite_check_and_unscale_() multiplies every element of
/// every tensor by inv_scale, in place, and sets found_inf to 1.0f if an
/// incoming element is inf or nan; equal to PyTorch's CPU operator of that name
/// (AmpGradScalerKernels.cpp) bit for bit, except the payload of a 16-bit nan:
///
///     for (t : tensors) for (x : t) {
///       if (!isfinite(x)) found_inf = 1.0f;  // before the multiply
///       if (inv_scale != 1.0f) x = round_to_dtype(opmath(x) * inv_scale);
///     }
///
/// opmath is double for float64, else float. inv_scale == 1 only reads. Any
/// thread may call, also several at once on one machine.
///
/// Gradients in float8, which PyTorch's operator refuses, are rounded as
/// PyTorch 2.13's Tensor.to() does: a product beyond the largest number becomes
/// that in float8_e4m3fn, inf in float8_e5m2.
///
/// @param tensors the caller's arrays; dtypes may be mixed, the arrays must not
///   overlap; the list and its tensors may be empty
/// @param[in,out] found_inf set to 1.0f or left unchanged, never cleared
/// @param inv_scale usually 1 / loss scale; its value is not checked
/// @param[out] report written if not null
/// @param machine where to run; null: Machine::default_machine()
/// @throws Error before anything is written, with the tensor's index in the
///   text: SWAMP_INVALID_ARGUMENT for an unknown dtype, null data with a count,
///   a count whose bytes overflow, or data not aligned to its element;
///   SWAMP_UNSUPPORTED for an 8-bit dtype but float8_e4m3fn and float8_e5m2
SWAMP_API void amp_foreach_non_finite_check_and_unscale_(
    TensorList tensors, float& found_inf, const float& inv_scale,
    OverflowReport* report = nullptr, Machine* machine = nullptr);

/// amp_update_scale_() updates the loss scale as PyTorch's CPU operator
/// _amp_update_scale_: multiplied by backoff_factor if found_inf is not 0, by
/// growth_factor after growth_interval clean calls in a row unless the result
/// would be infinite. Products are computed in double and rounded once.
/// Arguments are not validated.
///
/// @param[in,out] scale the loss scale
/// @param[in,out] growth_tracker clean calls in a row
/// @param found_inf as set by the unscale; nan counts as found
/// @param growth_factor usually above 1
/// @param backoff_factor usually between 0 and 1
/// @param growth_interval in calls; 0 or less: it never grows
/// @return the new scale
SWAMP_API float amp_update_scale_(float& scale, std::int32_t& growth_tracker,
                                  float found_inf, double growth_factor,
                                  double backoff_factor,
                                  std::int64_t growth_interval) noexcept;

}  // namespace swamp

#endif  // SWAMP_AMP_H_
