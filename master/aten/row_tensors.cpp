#include "master/aten/row_tensors.h"

#include <c10/util/Exception.h>

#include "master/aten/tensor.h"

namespace swamp::aten {

void require_rows(const at::Tensor& x, const char* operation) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      type == at::kHalf || type == at::kBFloat16 || type == at::kFloat, '"',
      operation, "\" not implemented for '", c10::toString(type), '\'');
  TORCH_CHECK((x.is_cpu() || x.is_meta()) && x.layout() == at::kStrided,
              operation, ": expected a strided CPU tensor, but got ",
              x.layout(), " on ", x.device());
}

void require_like(const at::Tensor& tensor, const char* name,
                  const at::Tensor& other, const char* other_name) {
  TORCH_CHECK(tensor.scalar_type() == other.scalar_type(), name,
              ": got the dtype ", c10::toString(tensor.scalar_type()),
              ", expected ", c10::toString(other.scalar_type()), ", as ",
              other_name);
  TORCH_CHECK(tensor.sym_sizes() == other.sym_sizes(), name, ": got the shape ",
              tensor.sym_sizes(), ", expected ", other.sym_sizes(), ", as ",
              other_name);
}

void require_targets(const std::int64_t* targets, std::int64_t count,
                     std::int64_t classes, std::int64_t ignore_index) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t one = targets[i];
    TORCH_CHECK_INDEX(one == ignore_index || (one >= 0 && one < classes),
                      "Target ", one, " is out of bounds.");
  }
}

at::Tensor row_major(const at::Tensor& tensor) {
  at::Tensor result = resolved(tensor).contiguous();
  const bool aligned = is_aligned(address_of(result), result.element_size());
  return aligned ? result : result.clone();
}

Matrix matrix_of(const at::Tensor& tensor, std::int64_t dimensions) {
  std::int64_t rows = 1, columns = 1;
  const std::int64_t leading = tensor.dim() - dimensions;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    (i < leading ? rows : columns) *= tensor.size(i);
  }
  return {const_cast<void*>(const_data(tensor)), static_cast<std::size_t>(rows),
          static_cast<std::size_t>(columns),
          *scalar_type(tensor.scalar_type())};
}

}  // namespace swamp::aten
