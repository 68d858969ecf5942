// Where tensors lie in memory, and whether they overlap.
#ifndef SWAMP_MASTER_ATEN_LAYOUT_H_
#define SWAMP_MASTER_ATEN_LAYOUT_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swamp::aten {

// Layout is where the elements of a strided tensor lie, without their order,
// which does not matter to an operation on each element: dimensions are sorted
// by stride, and two are joined if the second continues the first.
struct Layout {
  struct Dimension {
    std::int64_t count;   // above 1
    std::int64_t stride;  // in elements
  };
  c10::SmallVector<Dimension, 8> dimensions;  // the smallest stride first
  std::int64_t extent = 1;  // elements from the first to the last, inclusive
  bool disjoint = true;     // certainly no two elements at one address

  // The tensor must have elements.
  explicit Layout(const at::Tensor& tensor);

  // The number of elements in a row, which is contiguous.
  std::int64_t row_count() const noexcept {
    return dimensions.empty() || dimensions[0].stride != 1
               ? 1
               : dimensions[0].count;
  }

  // for_each_row() calls visit(offset in elements) for every row.
  template <class Visit>
  void for_each_row(Visit visit) const {
    const std::size_t first = row_count() == 1 ? 0 : 1;
    c10::SmallVector<std::int64_t, 8> index(dimensions.size(), 0);
    std::int64_t offset = 0;
    for (;;) {
      visit(offset);
      std::size_t d = first;
      for (; d < dimensions.size(); ++d) {
        offset += dimensions[d].stride;
        if (++index[d] < dimensions[d].count) break;
        offset -= dimensions[d].stride * dimensions[d].count;
        index[d] = 0;
      }
      if (d == dimensions.size()) return;
    }
  }
};

// Extent is the memory from a tensor's first byte to its last; never empty.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;  // one past the last byte
};

// extent_of() returns the extent of a tensor that has elements.
Extent extent_of(const at::Tensor& tensor);

// any_overlap() returns whether two extents share a byte. If the addresses rise
// or fall along the list, it is one pass; otherwise a radix sort, about 5 ns
// per extent. Reorders `extents`; `scratch` is memory for the sort, to be
// reused.
bool any_overlap(std::vector<Extent>& extents, std::vector<Extent>& scratch);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_LAYOUT_H_
