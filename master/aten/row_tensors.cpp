#include "master/aten/row_tensors.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/tensor.h"
#include "swamp/convolution.h"

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

at::Tensor contiguous(const at::Tensor& x, at::MemoryFormat format) {
  if (x.is_contiguous(format)) return x;
  const at::ScalarType type = x.scalar_type();
  if (!x.is_cpu() || !is_dense(x) || x.numel() == 0 || is_lazy(x) ||
      (!is_half(type) && type != at::kFloat) ||
      !is_aligned(address_of(x), x.element_size())) {
    return x.contiguous(format);
  }
  const at::Tensor result = at::empty(x.sizes(), x.options(), format);
  // Dimensions that follow each other in both tensors are one.
  struct Dimension {
    std::int64_t size, from, to;  // from and to: strides
  };
  std::vector<Dimension> all;
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    const Dimension one{x.size(i), x.stride(i), result.stride(i)};
    if (one.size == 1) continue;
    if (!all.empty() && all.back().from == one.size * one.from &&
        all.back().to == one.size * one.to) {
      all.back() = {all.back().size * one.size, one.from, one.to};
    } else {
      all.push_back(one);
    }
  }
  if (all.size() == 2) all.insert(all.begin(), {1, x.numel(), x.numel()});
  if (all.size() == 3 && all[0].from == all[0].to) {
    // The rows and columns of `x` in memory.
    if (all[1].from < all[2].from) std::swap(all[1], all[2]);
    const std::int64_t rows = all[1].size, columns = all[2].size;
    if (all[2].from == 1 && all[1].from == columns && all[1].to == 1 &&
        all[2].to == rows && all[0].from == rows * columns) {
      translated([&] {
        transpose(static_cast<std::size_t>(all[0].size),
                  static_cast<std::size_t>(rows),
                  static_cast<std::size_t>(columns), *scalar_type(type),
                  const_data(x), mutable_data(result));
      });
      return result;
    }
  }
  result.copy_(x);
  return result;
}

at::Tensor row_major(const at::Tensor& tensor) {
  at::Tensor result = contiguous(resolved(tensor));
  const bool aligned = is_aligned(address_of(result), result.element_size());
  return aligned ? result : result.clone();
}

at::Tensor& write_out(const at::Tensor& result,
                      std::initializer_list<at::Tensor> inputs,
                      at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  for (const at::Tensor& x : inputs) at::assert_no_partial_overlap(out, x);
  if (at::native::resize_output(out, result.sizes()) && is_dense(result)) {
    out.as_strided_(result.sizes(), result.strides());
  }
  return out.copy_(result);
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
