#ifndef SWAMP_SCAN_H_
#define SWAMP_SCAN_H_

#include <cstdint>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

// TensorStatistics is what scan_non_finite() finds in one tensor.
struct TensorStatistics {
  std::uint64_t count = 0;  // elements: inf, nan and finite together
  std::uint64_t inf_count = 0;
  std::uint64_t nan_count = 0;
  // Flat index of the first inf or nan; only where non_finite_count() is not 0.
  std::uint64_t first_non_finite = 0;
  // Of the finite elements, exact; only where finite_count() is not 0. -0
  // counts as less than +0, and absmax is never -0.
  double min = 0;
  double max = 0;
  double absmax = 0;

  std::uint64_t non_finite_count() const noexcept {
    return inf_count + nan_count;
  }
  std::uint64_t finite_count() const noexcept {
    return count - non_finite_count();
  }

  // add() takes in the statistics of elements that follow directly behind.
  SWAMP_API void add(const TensorStatistics& next) noexcept;
};

// scan_non_finite() reads every element of every tensor and fills
// out[0..tensors.count()). All dtypes are taken, also float8 and mixed in one
// list; nothing is written but `out`. The result depends on the elements alone,
// not on machine, transfer mode, ISA or number of slaves. `machine` null means
// Machine::default_machine(). Any thread may call. Throws Error, before
// anything is written, for a null `out` with a list that is not empty, an
// unknown dtype, null data with a count, a count whose bytes overflow, or data
// not aligned to its element; the text names the tensor's index.
SWAMP_API void scan_non_finite(TensorList tensors, TensorStatistics* out,
                               Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_SCAN_H_
