#ifndef SWAMP_MASTER_ATEN_LAYOUT_H_
#define SWAMP_MASTER_ATEN_LAYOUT_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace swamp::aten {

// Layout is where the elements of a strided tensor lie. Their order does not
// matter to an operation on each, so dimensions are put in the order of their
// strides and joined where one continues another.
struct Layout {
  struct Dimension {
    std::int64_t count;   // above 1
    std::int64_t stride;  // in elements
  };
  c10::SmallVector<Dimension, 8> dimensions;  // the smallest stride first
  std::int64_t extent = 1;  // elements between the first and the last, and both
  bool disjoint = true;     // surely no two elements at one address

  // Of a tensor that has elements.
  explicit Layout(const at::Tensor& tensor);

  // Elements that follow each other without a gap.
  std::int64_t row_count() const noexcept {
    return dimensions.empty() || dimensions[0].stride != 1
               ? 1
               : dimensions[0].count;
  }

  // for_each_row() visits the offset, in elements, of every row.
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

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_LAYOUT_H_
