#include "master/aten/layout.h"

#include <algorithm>
#include <cstddef>

namespace swamp::aten {

Layout::Layout(const at::Tensor& tensor) {
  const at::IntArrayRef sizes = tensor.sizes();
  const at::IntArrayRef strides = tensor.strides();
  c10::SmallVector<Dimension, 8> sorted;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) sorted.push_back({sizes[d], strides[d]});
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Dimension& a, const Dimension& b) {
              return a.stride < b.stride;
            });
  for (const Dimension& next : sorted) {
    // A dimension steps over all that the smaller ones reach.
    disjoint = disjoint && next.stride >= extent;
    extent += (next.count - 1) * next.stride;
    if (!dimensions.empty() &&
        next.stride == dimensions.back().count * dimensions.back().stride) {
      dimensions.back().count *= next.count;
    } else {
      dimensions.push_back(next);
    }
  }
}

}  // namespace swamp::aten
