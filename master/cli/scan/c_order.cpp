#include "master/cli/scan/c_order.h"

#include <cmath>

#include "master/cli/scan/element_stream.h"
#include "swamp/float_formats.h"

namespace swamp::cli {
namespace {

// Walk goes through an array in Fortran order and knows the flat index in C
// order of where it is.
class Walk {
 public:
  explicit Walk(const std::vector<std::uint64_t>& shape)
      : shape_(shape), at_(shape.size(), 0), strides_(shape.size(), 1) {
    for (std::size_t d = shape.size(); d-- > 1;) {
      strides_[d - 1] = strides_[d] * shape[d];
    }
  }

  std::uint64_t index() const noexcept { return index_; }

  void step() noexcept {
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      index_ += strides_[d];
      if (++at_[d] < shape_[d]) return;
      index_ -= strides_[d] * shape_[d];
      at_[d] = 0;
    }
  }

 private:
  const std::vector<std::uint64_t>& shape_;
  std::vector<std::uint64_t> at_;
  std::vector<std::uint64_t> strides_;
  std::uint64_t index_ = 0;
};

// npy has only these three float formats.
bool is_finite(const void* data, std::size_t i, ScalarType type) {
  if (type == kFloat64) {
    return std::isfinite(static_cast<const double*>(data)[i]);
  }
  if (type == kFloat32) {
    return std::isfinite(static_cast<const float*>(data)[i]);
  }
  return std::isfinite(
      float16_to_float(static_cast<const std::uint16_t*>(data)[i]));
}

}  // namespace

bool differs_from_c_order(const FileTensor& tensor) {
  std::size_t long_dimensions = 0;
  for (const std::uint64_t length : tensor.shape) {
    long_dimensions += length != 1 ? 1 : 0;
  }
  return tensor.fortran_order && long_dimensions > 1;
}

std::uint64_t first_in_c_order(const FileTensor& tensor) {
  std::uint64_t lowest = ~std::uint64_t{0};
  Walk walk(tensor.shape);
  ElementStream stream(tensor);
  while (const std::size_t elements = stream.next()) {
    for (std::size_t i = 0; i < elements; ++i) {
      if (walk.index() < lowest &&
          !is_finite(stream.data(), i, tensor.element.type)) {
        lowest = walk.index();
      }
      // A buffer never ends between the parts of an element.
      if ((i + 1) % tensor.element.parts == 0) walk.step();
    }
  }
  return lowest;
}

}  // namespace swamp::cli
