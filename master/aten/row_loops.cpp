// index_select and cumsum of 16 bits along rows, and extremes of columns, by
// plain loops, with the bits of PyTorch's kernels, which take up to four times
// as long as for float32; and sums of columns, as float32.
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select_cpu_dispatch.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

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

// order() makes the bits of 16-bit numbers integers that have their order, nan
// beyond inf. It is its own inverse.
std::int16_t order(std::int16_t bits) {
  return static_cast<std::int16_t>(bits ^ ((bits >> 15) & 0x7fff));
}

// select() copies chosen columns of rows.
void select(const std::uint16_t* x, std::int64_t columns,
            const std::int64_t* places, std::int64_t count, std::uint16_t* y,
            std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i, x += columns, y += count) {
    for (std::int64_t j = 0; j < count; ++j) y[j] = x[places[j]];
  }
}

// index_select() of the last dimension; PyTorch copies one element at a time.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  const auto stock = [&] { return at::cpu::index_select(x, dim, index); };
  if (!has_rows(x, dim) || x.dim() < 2 || !is_plain(index, at::kLong) ||
      index.dim() != 1 || index.numel() == 0) {
    return stock();
  }
  const Guard guard;
  const std::int64_t columns = x.size(-1), count = index.numel();
  const Tensor all = index.contiguous();
  const auto* const places = all.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    if (places[i] < 0 || places[i] >= columns) return stock();
  }
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = count;
  const Tensor y = at::empty(sizes, x.options());
  const auto* const from = static_cast<const std::uint16_t*>(const_data(x));
  auto* const to = static_cast<std::uint16_t*>(mutable_data(y));
  over_rows(x.numel() / columns, count,
            [&](std::int64_t begin, std::int64_t end) {
              select(from + begin * columns, columns, places, count,
                     to + begin * count, end - begin);
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

float widened(float x) { return x; }
float widened(std::uint16_t bfloat16) {
  const std::uint32_t bits = std::uint32_t{bfloat16} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// add_lines() adds kLines lines, one after another, to sums of columns.
template <int kLines, class T>
void add_lines(const T* x, std::int64_t step, std::int64_t columns,
               float* sums) {
  for (std::int64_t j = 0; j < columns; ++j) {
    float sum = sums[j];
    for (int k = 0; k < kLines; ++k) sum += widened(x[k * step + j]);
    sums[j] = sum;
  }
}

// sum_lines() sets sums of columns, each divided by a number.
template <class T>
void sum_lines(const T* x, std::int64_t lines, std::int64_t step,
               std::int64_t columns, float divisor, float* sums) {
  constexpr int kLines = 4;
  // 0 is added so that a sum of -0 is 0, as PyTorch's.
  for (std::int64_t j = 0; j < columns; ++j) sums[j] = 0 + widened(x[j]);
  std::int64_t line = 1;
  for (; line + kLines <= lines; line += kLines) {
    add_lines<kLines>(x + line * step, step, columns, sums);
  }
  for (; line < lines; ++line) {
    add_lines<1>(x + line * step, step, columns, sums);
  }
  if (divisor == 1) return;
  for (std::int64_t j = 0; j < columns; ++j) sums[j] /= divisor;
}

// Extremes is those of kColumns columns.
struct Extremes {
  static constexpr std::int64_t kColumns = 1024;
  std::int16_t largest[kColumns], smallest[kColumns];

  void find(const std::int16_t* x, std::int64_t lines, std::int64_t step,
            std::int64_t columns) {
    for (std::int64_t j = 0; j < columns; ++j) {
      largest[j] = smallest[j] = order(x[j]);
    }
    for (std::int64_t line = 1; line < lines; ++line) {
      x += step;
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int16_t one = order(x[j]);
        largest[j] = std::max(largest[j], one);
        smallest[j] = std::min(smallest[j], one);
      }
    }
  }
  // A nan is quiet and has no payload.
  void store(bool is_smallest, std::int16_t infinity, std::int16_t nan,
             std::int64_t columns, std::int16_t* y) const {
    const std::int16_t least =
        order(static_cast<std::int16_t>(infinity | -0x8000));
    for (std::int64_t j = 0; j < columns; ++j) {
      const bool is_nan = largest[j] > infinity || smallest[j] < least;
      const std::int16_t one = order(is_smallest ? smallest[j] : largest[j]);
      y[j] = is_nan ? nan : one;
    }
  }
};

}  // namespace

// In parts, whose copies and sums stay in the caches. Only float16 is copied,
// by PyTorch, because its conversion takes instructions that not every CPU has.
Tensor column_sums(const Tensor& x, const SumShape& shape, float divisor,
                   at::IntArrayRef sizes) {
  const Guard guard;
  const auto outer = static_cast<std::int64_t>(shape.outer),
             terms = static_cast<std::int64_t>(shape.terms),
             inner = static_cast<std::int64_t>(shape.inner),
             at_once = (std::int64_t{1} << 16) * at::get_num_threads(),
             columns = std::clamp<std::int64_t>(at_once / terms, 1, inner),
             most = std::clamp<std::int64_t>(at_once / (terms * columns), 1,
                                             outer);
  const bool copies = x.scalar_type() == at::kHalf;
  const auto floats = x.options().dtype(at::kFloat);
  const Tensor y = at::empty(sizes, x.options()), to = y.view({outer, inner}),
               from = x.view({outer, terms, inner}),
               sums = at::empty({most, columns}, floats),
               wide = at::empty({copies ? most : 0, terms, columns}, floats);
  auto* const sum = static_cast<float*>(mutable_data(sums));
  for (std::int64_t i = 0; i < outer; i += most) {
    const std::int64_t rows = std::min(most, outer - i);
    for (std::int64_t j = 0; j < inner; j += columns) {
      const std::int64_t width = std::min(columns, inner - j);
      const auto add = [&](const auto* terms_of_all, std::int64_t step) {
        over_rows(rows, terms * width,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      sum_lines(terms_of_all + row * terms * step, terms, step,
                                width, divisor, sum + row * columns);
                    }
                  });
      };
      if (copies) {
        wide.narrow(0, 0, rows)
            .narrow(2, 0, width)
            .copy_(from.narrow(0, i, rows).narrow(2, j, width));
        add(static_cast<const float*>(const_data(wide)), columns);
      } else {
        add(static_cast<const std::uint16_t*>(const_data(x)) +
                i * terms * inner + j,
            inner);
      }
      to.narrow(0, i, rows)
          .narrow(1, j, width)
          .copy_(sums.narrow(0, 0, rows).narrow(1, 0, width));
    }
  }
  return y;
}

Tensor column_extremes(const Tensor& x, const SumShape& shape, bool is_smallest,
                       at::IntArrayRef sizes) {
  constexpr std::int64_t kColumns = Extremes::kColumns;
  const Guard guard;
  const Tensor y = at::empty(sizes, x.options());
  const auto* const from = static_cast<const std::int16_t*>(const_data(x));
  auto* const to = static_cast<std::int16_t*>(mutable_data(y));
  const auto lines = static_cast<std::int64_t>(shape.terms),
             inner = static_cast<std::int64_t>(shape.inner),
             blocks = (inner + kColumns - 1) / kColumns;
  const bool is_half = x.scalar_type() == at::kHalf;
  const auto infinity = static_cast<std::int16_t>(is_half ? 0x7c00 : 0x7f80),
             nan = static_cast<std::int16_t>(is_half ? 0x7e00 : 0x7fc0);
  over_rows(static_cast<std::int64_t>(shape.outer) * blocks,
            lines * std::min(inner, kColumns),
            [&](std::int64_t begin, std::int64_t end) {
              Extremes of;
              for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t row = i / blocks,
                                   first = i % blocks * kColumns,
                                   count = std::min(kColumns, inner - first);
                of.find(from + row * lines * inner + first, lines, inner,
                        count);
                of.store(is_smallest, infinity, nan, count,
                         to + row * inner + first);
              }
            });
  return y;
}

void register_row_loops(torch::Library& library) {
  library.impl("index_select", &index_select);
  library.impl("cumsum", &cumsum);
}

}  // namespace swamp::aten
