// PyTorch's softmax and log_softmax of 16-bit rows with the dtype float32, as
// in the attention of many models: PyTorch's kernel of float32, and its bits,
// but of parts of the rows, whose float32 copies stay in the caches.
#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/softmax_compositeimplicitautograd_dispatch.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "master/aten/overrides.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using Guard = at::AutoDispatchBelowADInplaceOrView;

// Elements of a part. Fewer are as fast in one copy.
constexpr std::int64_t kPart = std::int64_t{1} << 16;

// rows_of() returns a tensor as a matrix of its rows.
Tensor rows_of(const Tensor& x) {
  return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
}

// in_parts() calls compute(begin, count, wide) for parts of the rows of a
// matrix, with float32 memory for one.
template <class Compute>
void in_parts(const Tensor& matrix, const Compute& compute) {
  // PyTorch's threads take whole rows.
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1),
                     threads = at::get_num_threads(),
                     of_thread = std::max<std::int64_t>(1, kPart / columns),
                     most = std::min(of_thread * threads, rows);
  const Tensor wide =
      at::empty({most, columns}, matrix.options().dtype(at::kFloat));
  for (std::int64_t i = 0; i < rows; i += most) {
    const std::int64_t count = std::min(most, rows - i);
    compute(i, count, wide.narrow(0, 0, count));
  }
}

// wide() is a softmax in a dtype. PyTorch composes it of a copy and of kWide.
template <Tensor (*kWide)(const Tensor&, std::int64_t, bool),
          Tensor (*kStock)(const Tensor&, std::int64_t,
                           std::optional<at::ScalarType>)>
Tensor wide(const Tensor& x, std::int64_t dim,
            std::optional<at::ScalarType> dtype) {
  return dtype == at::kFloat && is_wide_softmax(x, dim) &&
                 !at::isTensorSubclassLike(x) && !is_seen({x})
             ? kWide(x, dim, true)
             : kStock(x, dim, dtype);
}

}  // namespace

bool is_wide_softmax(const Tensor& x, std::int64_t dim) {
  const at::ScalarType type = x.scalar_type();
  return is_half(type) && is_switched(type) && !is_reproducible() &&
         is_plain(x, type) &&
         !x.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
         x.numel() >= 2 * kPart && x.is_contiguous() &&
         (dim == -1 || dim == x.dim() - 1);
}

Tensor wide_softmax(const Tensor& x, bool is_log) {
  const Guard guard;
  const Tensor y = at::empty(x.sizes(), x.options().dtype(at::kFloat)),
               from = rows_of(x), to = rows_of(y);
  in_parts(from,
           [&](std::int64_t begin, std::int64_t count, const Tensor& wide) {
             wide.copy_(from.narrow(0, begin, count));
             Tensor part = to.narrow(0, begin, count);
             if (is_log) {
               at::cpu::_log_softmax_outf(wide, 1, false, part);
             } else {
               at::cpu::_softmax_outf(wide, 1, false, part);
             }
           });
  return y;
}

Tensor wide_softmax_backward(const Tensor& grad, const Tensor& y,
                             std::int64_t dim, at::ScalarType type,
                             bool is_log) {
  const Guard guard;
  const auto compute = [&](const Tensor& gradient, const Tensor& result,
                           std::int64_t d, Tensor dx) {
    if (is_log) {
      at::cpu::_log_softmax_backward_data_outf(gradient, result, d, at::kFloat,
                                               dx);
    } else {
      at::cpu::_softmax_backward_data_outf(gradient, result, d, at::kFloat, dx);
    }
  };
  if (!y.is_contiguous() || grad.sizes() != y.sizes() || y.dim() == 0 ||
      y.numel() == 0 || (dim != -1 && dim != y.dim() - 1)) {
    const Tensor dx = at::empty({0}, y.options());
    compute(grad, y, dim, dx);
    return dx.to(type);
  }
  const Tensor dx = at::empty(y.sizes(), y.options().dtype(type)),
               from = rows_of(grad.contiguous()), result = rows_of(y),
               to = rows_of(dx);
  in_parts(result,
           [&](std::int64_t begin, std::int64_t count, const Tensor& wide) {
             compute(from.narrow(0, begin, count),
                     result.narrow(0, begin, count), 1, wide);
             to.narrow(0, begin, count).copy_(wide);
           });
  return dx;
}

void register_wide_softmax(torch::Library& library) {
  namespace stock = at::compositeimplicitautograd;
  library.impl("softmax.int", &wide<&at::_softmax, &stock::softmax>);
  library.impl("log_softmax.int",
               &wide<&at::_log_softmax, &stock::log_softmax>);
}

}  // namespace swamp::aten
