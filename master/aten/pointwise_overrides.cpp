// PyTorch's operators of each element that take a few operations, of 16 bits:
// its own convert every vector there and back, and take up to twice as long as
// those of float32. Both have the same bits: float32 inside, rounded once. The
// gradient of mse_loss() is rounded once by swamp only.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#include <ATen/ops/clamp_max_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hardsigmoid_cpu_dispatch.h>
#include <ATen/ops/hardswish_cpu_dispatch.h>
#include <ATen/ops/hardtanh_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_cpu_dispatch.h>
#include <ATen/ops/mse_loss_backward_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/relu_cpu_dispatch.h>
#include <ATen/ops/sub_cpu_dispatch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/tensor.h"
#include "swamp/pointwise.h"

namespace swamp::aten {
namespace {

using at::Scalar;
using at::Tensor;
using Guard = at::AutoDispatchBelowADInplaceOrView;
using OptionalOptions = std::optional<PointwiseOptions>;

bool is_taken(const Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return is_half(type) && is_switched(type) && is_plain(x, type) &&
         x.numel() >= kLeastElements && is_dense(x) && !is_lazy(x) &&
         is_aligned(address_of(x), 2);
}

// Second is the other operand of a function, and its memory.
struct Second {
  Tensor memory;
  std::int64_t columns = 1;
};

// find_second() sets where z is for each element of x; it returns false if it
// would have to be copied for more than each row.
bool find_second(const Tensor& x, const Tensor& z, PointwiseOptions& options,
                 Second& second) {
  if (!is_plain(z, x.scalar_type()) || z.dim() == 0 || is_lazy(z) ||
      !is_aligned(address_of(z), 2)) {
    return false;
  }
  if (z.sizes() == x.sizes() && has_order_of(z, x)) {
    second.memory = z;
    options.matrix = const_data(z);
    return true;
  }
  if (!x.is_contiguous() || !at::is_expandable_to(z.sizes(), x.sizes())) {
    return false;
  }
  // Dimensions of one element have no stride.
  const Tensor all = z.expand(x.sizes());
  const auto step = [&](std::int64_t i) {
    return all.size(i) == 1 ? 0 : all.stride(i);
  };
  std::int64_t i = x.dim(), columns = 1;
  const auto take = [&](bool is_value) {
    i = x.dim(), columns = 1;
    while (i > 0 &&
           (x.size(i - 1) == 1 || step(i - 1) == (is_value ? 0 : columns))) {
      columns *= x.size(--i);
    }
    return columns >= kLeastColumns;
  };
  second.columns = 0;
  if (take(true)) {
    Tensor values = all;
    for (std::int64_t d = i; d < x.dim(); ++d) values = values.select(i, 0);
    second.memory = values.to(at::kFloat).contiguous();
    options.values = static_cast<const float*>(const_data(second.memory));
  } else if (take(false)) {
    for (std::int64_t d = 0; d < i; ++d) {
      if (step(d) != 0) return false;
    }
    second.memory = z;
    options.row = const_data(z);
  } else {
    return false;
  }
  second.columns = columns;
  return true;
}

// result_of() has the order of x in memory. As PyTorch's, a contiguous one has
// the strides of a new tensor, also in dimensions of one element.
Tensor result_of(const Tensor& x) {
  return x.is_contiguous() ? at::empty(x.sizes(), x.options())
                           : at::empty_like(x);
}

// run() computes y, which has the order of x in memory.
void run(const Tensor& x, const Tensor& y, const PointwiseOptions& options,
         std::int64_t columns = 1) {
  void* const to = mutable_data(y);
  const auto rows = static_cast<std::size_t>(x.numel() / columns);
  const auto width = static_cast<std::size_t>(columns);
  const auto type = *scalar_type(x.scalar_type());
  translated([&] {
    swamp::pointwise({const_cast<void*>(const_data(x)), rows, width, type},
                     {to, rows, width, type}, options);
  });
}

// ---- Functions of one operand. Function::options() has the arguments, and
// returns nothing for those that stay PyTorch's.

template <class Function, class... Args>
struct Unary {
  template <Tensor (*kStock)(const Tensor&, Args...)>
  static Tensor value(const Tensor& x, Args... args) {
    OptionalOptions options;
    if (is_taken(x)) options = Function::options(x.scalar_type(), args...);
    if (!options) return kStock(x, args...);
    const Guard guard;
    const Tensor y = result_of(x);
    run(x, y, *options);
    return y;
  }
  template <Tensor& (*kStock)(Tensor&, Args...)>
  static Tensor& in_place(Tensor& x, Args... args) {
    OptionalOptions options;
    if (is_taken(x)) options = Function::options(x.scalar_type(), args...);
    if (!options) return kStock(x, args...);
    run(x, x, *options);
    return x;
  }
};

template <Pointwise kFunction>
struct Plain {
  static OptionalOptions options(at::ScalarType) {
    return PointwiseOptions{kFunction};
  }
};

using Limit = std::optional<Scalar>;
struct Clamp {
  // PyTorch refuses limits that the dtype cannot hold, and none.
  static OptionalOptions options(at::ScalarType type, const Limit& low,
                                 const Limit& high) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    PointwiseOptions found{Pointwise::clamp, -kInfinity, kInfinity};
    if (!low && !high) return {};
    if (low && !set(type, *low, found.alpha)) return {};
    if (high && !set(type, *high, found.beta)) return {};
    return found;
  }

 private:
  static bool set(at::ScalarType type, const Scalar& limit, float& number) {
    if (limit.isComplex()) return false;
    const double value = limit.toDouble();
    const double largest =
        type == at::kHalf
            ? 65504
            : static_cast<double>(std::numeric_limits<at::BFloat16>::max());
    if (!(std::fabs(value) <= largest)) return false;
    number = type == at::kHalf ? float{limit.to<at::Half>()}
                               : float{limit.to<at::BFloat16>()};
    return true;
  }
};
struct ClampMin {
  static OptionalOptions options(at::ScalarType type, const Scalar& low) {
    return Clamp::options(type, low, {});
  }
};
struct ClampMax {
  static OptionalOptions options(at::ScalarType type, const Scalar& high) {
    return Clamp::options(type, {}, high);
  }
};
struct HardTanh {
  static OptionalOptions options(at::ScalarType type, const Scalar& low,
                                 const Scalar& high) {
    return Clamp::options(type, low, high);
  }
};
struct Relu {
  static OptionalOptions options(at::ScalarType type) {
    return Clamp::options(type, Scalar(0), {});
  }
};
struct LeakyRelu {
  static OptionalOptions options(at::ScalarType, const Scalar& slope) {
    if (slope.isComplex()) return {};
    return PointwiseOptions{Pointwise::leaky_relu, slope.to<float>()};
  }
};

// ---- Functions of two operands

PointwiseOptions swapped(PointwiseOptions options) {
  std::swap(options.alpha, options.beta);
  return options;
}

// outer() is binary() of a row and a column.
std::optional<Tensor> outer(const Tensor& row, const Tensor& column,
                            PointwiseOptions options) {
  const at::ScalarType type = row.scalar_type();
  if (!is_half(type) || !is_switched(type) || !is_plain(row, type) ||
      !is_plain(column, type) || is_lazy(row) || is_lazy(column) ||
      row.dim() == 0 || column.dim() < 2 || column.size(-1) != 1 ||
      row.size(-1) != row.numel() || row.numel() < kLeastColumns ||
      row.dim() > column.dim() || row.stride(-1) != 1 ||
      !is_aligned(address_of(row), 2) ||
      row.numel() * column.numel() < kLeastElements) {
    return {};
  }
  std::vector<std::int64_t> sizes = column.sizes().vec();
  sizes.back() = row.numel();
  const Tensor y = at::empty(sizes, row.options()),
               values = column.to(at::kFloat).contiguous();
  void* const to = mutable_data(y);
  options.row = const_data(row);
  options.values = static_cast<const float*>(const_data(values));
  const auto rows = static_cast<std::size_t>(column.numel()),
             columns = static_cast<std::size_t>(row.numel());
  const auto of = *scalar_type(type);
  translated([&] {
    swamp::pointwise({nullptr, rows, columns, of}, {to, rows, columns, of},
                     options);
  });
  return y;
}

// binary() returns nothing if a function stays PyTorch's. One of the operands
// has the shape of the result, or they are a row and a column.
std::optional<Tensor> binary(const Tensor& a, const Tensor& b,
                             PointwiseOptions options) {
  if (!is_half(a.scalar_type())) return {};
  const Guard guard;
  const bool is_first = a.numel() >= b.numel();
  if (!a.is_same_size(b) && a.dim() > 1 && a.size(-1) == 1) {
    if (auto y = outer(b, a, swapped(options))) return y;
  }
  if (!a.is_same_size(b) && b.dim() > 1 && b.size(-1) == 1) {
    if (auto y = outer(a, b, options)) return y;
  }
  const Tensor &x = is_first ? a : b, &z = is_first ? b : a;
  if (!is_taken(x)) return {};
  if (!is_first) options = swapped(options);
  Second second;
  if (!find_second(x, z, options, second)) return {};
  const Tensor y = result_of(x);
  run(x, y, options, second.columns);
  return y;
}

bool binary_(const Tensor& x, const Tensor& z, PointwiseOptions options) {
  if (!is_taken(x)) return false;
  const Guard guard;
  Second second;
  if (!find_second(x, z, options, second)) return false;
  at::assert_no_partial_overlap(x, z);
  run(x, x, options, second.columns);
  return true;
}

// PyTorch's sum of a 16-bit alpha is a fused multiply-add.
template <int kSign,
          Tensor (*kStock)(const Tensor&, const Tensor&, const Scalar&)>
Tensor sum(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_one(alpha)) {
    if (auto y = binary(a, b, {Pointwise::sum, 1, kSign})) return *y;
  }
  return kStock(a, b, alpha);
}
template <int kSign, Tensor& (*kStock)(Tensor&, const Tensor&, const Scalar&)>
Tensor& sum_(Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_one(alpha) && binary_(a, b, {Pointwise::sum, 1, kSign})) {
    return a;
  }
  return kStock(a, b, alpha);
}

// The gradient of a loss that is one number. That of other losses is PyTorch's
// float32 kernel, unless copies would take longer, as new pages of memory.
Tensor mse_loss_backward(const Tensor& grad, const Tensor& x,
                         const Tensor& target, std::int64_t reduction) {
  const auto stock = [&](const auto& convert) {
    return at::cpu::mse_loss_backward(convert(grad), convert(x),
                                      convert(target), reduction);
  };
  const at::ScalarType type = x.scalar_type();
  if (is_taken(x) && is_plain(grad, type) && is_plain(target, type) &&
      target.sizes() == x.sizes()) {
    const Guard guard;
    if (grad.dim() == 0) {
      const double factor = reduction == at::Reduction::Mean
                                ? 2.0 / static_cast<double>(x.numel())
                                : 2.0;
      const auto found =
          binary(x, target,
                 {Pointwise::difference, static_cast<float>(factor),
                  grad.item<float>()});
      if (found) return *found;
    }
    if (type == at::kBFloat16 && x.numel() <= kMostElements) {
      return stock([](const Tensor& one) { return one.to(at::kFloat); })
          .to(type);
    }
  }
  return stock([](const Tensor& one) -> const Tensor& { return one; });
}

}  // namespace

Tensor pointwise_add(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return sum<1, &at::cpu::add>(a, b, alpha);
}
Tensor& pointwise_add_(Tensor& a, const Tensor& b, const Scalar& alpha) {
  return sum_<1, &at::cpu::add_>(a, b, alpha);
}
Tensor pointwise_sub(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return sum<-1, &at::cpu::sub>(a, b, alpha);
}
Tensor& pointwise_sub_(Tensor& a, const Tensor& b, const Scalar& alpha) {
  return sum_<-1, &at::cpu::sub_>(a, b, alpha);
}
Tensor pointwise_mul(const Tensor& a, const Tensor& b) {
  if (auto y = binary(a, b, {Pointwise::product})) return *y;
  return at::cpu::mul(a, b);
}
Tensor& pointwise_mul_(Tensor& a, const Tensor& b) {
  if (binary_(a, b, {Pointwise::product})) return a;
  return at::cpu::mul_(a, b);
}

void register_pointwise(torch::Library& library) {
#define SWAMP_OVERRIDE(Type, name)                   \
  library.impl(#name, &Type::value<&at::cpu::name>); \
  library.impl(#name "_", &Type::in_place<&at::cpu::name##_>)
  using AnyClamp = Unary<Clamp, const Limit&, const Limit&>;
  using AnyClampMin = Unary<ClampMin, const Scalar&>;
  using AnyClampMax = Unary<ClampMax, const Scalar&>;
  using AnyHardTanh = Unary<HardTanh, const Scalar&, const Scalar&>;
  using AnyRelu = Unary<Relu>;
  using AnyLeakyRelu = Unary<LeakyRelu, const Scalar&>;
  using HardSwish = Unary<Plain<Pointwise::hard_swish>>;
  using HardSigmoid = Unary<Plain<Pointwise::hard_sigmoid>>;
  SWAMP_OVERRIDE(AnyClamp, clamp);
  SWAMP_OVERRIDE(AnyClampMin, clamp_min);
  SWAMP_OVERRIDE(AnyClampMax, clamp_max);
  SWAMP_OVERRIDE(AnyHardTanh, hardtanh);
  SWAMP_OVERRIDE(AnyRelu, relu);
  SWAMP_OVERRIDE(AnyLeakyRelu, leaky_relu);
  SWAMP_OVERRIDE(HardSwish, hardswish);
  SWAMP_OVERRIDE(HardSigmoid, hardsigmoid);
#undef SWAMP_OVERRIDE
  library.impl("mse_loss_backward", &mse_loss_backward);
}

}  // namespace swamp::aten
