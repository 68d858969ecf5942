// flip and cumsum of 16 bits along rows, by plain loops, with the bits of
// PyTorch's kernels, which take up to three times as long as for float32.
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip_cpu_dispatch.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using Guard = at::AutoDispatchBelowADInplaceOrView;

// has_rows() returns whether a dimension is the rows of a tensor that swamp
// computes.
bool has_rows(const Tensor& x, std::int64_t dim) {
  const at::ScalarType type = x.scalar_type();
  return is_half(type) && is_switched(type) && is_plain(x, type) &&
         x.is_contiguous() && !is_lazy(x) && x.numel() >= kLeastElements &&
         (dim == -1 || dim == x.dim() - 1) && x.size(-1) >= kLeastColumns &&
         is_aligned(address_of(x), 2);
}

// over_rows() calls compute(begin, end) for parts of rows, in parallel.
template <class Compute>
void over_rows(std::int64_t rows, std::int64_t columns,
               const Compute& compute) {
  at::parallel_for(
      0, rows, std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / columns),
      compute);
}

void reverse(const std::uint16_t* x, std::int64_t count, std::uint16_t* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[count - 1 - i];
}

Tensor flip(const Tensor& x, at::IntArrayRef dims) {
  if (dims.size() != 1 || !has_rows(x, dims[0])) return at::cpu::flip(x, dims);
  const Guard guard;
  const Tensor y = at::empty_like(x);
  const std::int64_t columns = x.size(-1);
  const auto* const from = static_cast<const std::uint16_t*>(const_data(x));
  auto* const to = static_cast<std::uint16_t*>(mutable_data(y));
  over_rows(x.numel() / columns, columns,
            [&](std::int64_t begin, std::int64_t end) {
              for (std::int64_t i = begin; i < end; ++i) {
                reverse(from + i * columns, columns, to + i * columns);
              }
            });
  return y;
}

// add_up() makes kRows rows sums of their first elements. A sum waits for the
// one before: several rows at once use that time.
template <int kRows>
void add_up(float* x, std::int64_t columns) {
  float sums[kRows] = {};
  for (std::int64_t j = 0; j < columns; ++j) {
    for (int k = 0; k < kRows; ++k) {
      float& one = x[k * columns + j];
      one = sums[k] += one;
    }
  }
}

// In float32, a slice of rows at a time, whose copy stays in the caches.
Tensor cumsum(const Tensor& x, std::int64_t dim,
              std::optional<at::ScalarType> dtype) {
  constexpr std::int64_t kSliceElements = std::int64_t{1} << 19;
  if (dtype.value_or(x.scalar_type()) != x.scalar_type() || !has_rows(x, dim) ||
      x.size(-1) > kSliceElements) {
    return at::cpu::cumsum(x, dim, dtype);
  }
  const Guard guard;
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns,
                     most = std::max<std::int64_t>(1, kSliceElements / columns);
  const Tensor from = x.view({rows, columns}),
               y = at::empty(x.sizes(), x.options()),
               to = y.view({rows, columns}),
               wide = at::empty({std::min(rows, most), columns},
                                x.options().dtype(at::kFloat));
  for (std::int64_t i = 0; i < rows; i += most) {
    const std::int64_t count = std::min(most, rows - i);
    const Tensor slice = wide.narrow(0, 0, count);
    slice.copy_(from.narrow(0, i, count));
    auto* const sums = static_cast<float*>(mutable_data(slice));
    over_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
      constexpr int kRows = 4;
      std::int64_t row = begin;
      for (; row + kRows <= end; row += kRows) {
        add_up<kRows>(sums + row * columns, columns);
      }
      for (; row < end; ++row) add_up<1>(sums + row * columns, columns);
    });
    to.narrow(0, i, count).copy_(slice);
  }
  return y;
}

}  // namespace

void register_row_loops(torch::Library& library) {
  library.impl("flip", &flip);
  library.impl("cumsum", &cumsum);
}

}  // namespace swamp::aten
