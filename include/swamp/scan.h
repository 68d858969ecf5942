/// @file
/// The search for inf and nan: their counts and the position of the first, and
/// minimum and maximum of the finite elements.
#ifndef SWAMP_SCAN_H_
#define SWAMP_SCAN_H_

#include <cstdint>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// TensorStatistics is the result of scan_non_finite() for one tensor.
struct TensorStatistics {
  std::uint64_t count = 0;      ///< elements: inf, nan and finite together
  std::uint64_t inf_count = 0;  ///< of either sign
  std::uint64_t nan_count = 0;  ///< quiet and signalling
  /// Flat index of the first inf or nan; 0 if non_finite_count() is 0.
  std::uint64_t first_non_finite = 0;
  /// Lowest of the finite elements, exact; 0 if finite_count() is 0. -0 is less
  /// than +0.
  double min = 0;
  double max = 0;     ///< highest of the finite elements, as min
  double absmax = 0;  ///< largest magnitude of them; never -0

  /// Elements that are inf or nan.
  std::uint64_t non_finite_count() const noexcept {
    return inf_count + nan_count;
  }
  /// Elements that are neither.
  std::uint64_t finite_count() const noexcept {
    return count - non_finite_count();
  }

  /// add() adds the statistics of the elements that follow in the same tensor.
  SWAMP_API void add(const TensorStatistics& next) noexcept;
};

/// scan_non_finite() reads every element of every tensor. The result depends
/// only on the elements, not on machine, transfer mode, ISA, number of slaves
/// or the caller's float environment. Any thread may call, also several at once
/// on one machine.
///
/// @param tensors the caller's arrays, only read; all dtypes including float8,
///   which may be mixed; the list and its tensors may be empty
/// @param[out] out one for every tensor of the list; may be null if the list is
///   empty
/// @param machine where to run; null: Machine::default_machine()
/// @throws Error before anything is written, with the tensor's index in the
///   text: SWAMP_INVALID_ARGUMENT for a null `out`, an unknown dtype, null data
///   with a count, a count whose bytes overflow, or data not aligned to its
///   element
SWAMP_API void scan_non_finite(TensorList tensors, TensorStatistics* out,
                               Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_SCAN_H_
