// PyTorch's operators of each element that take a few operations, of 16 bits:
// its own convert every vector there and back, and take up to twice as long as
// those of float32. Both have the same bits: float32 inside, rounded once. But
// addcmul, addcdiv, lerp and sums with alpha round each operation to float32,
// where PyTorch's are fused; losses of differences, and their gradients, are
// rounded to 16 bits once by swamp only; and sums of losses are float32 up to
// some terms, then double.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_prelu_kernel_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#include <ATen/ops/clamp_max_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hardsigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid_cpu_dispatch.h>
#include <ATen/ops/hardswish_cpu_dispatch.h>
#include <ATen/ops/hardtanh_backward_cpu_dispatch.h>
#include <ATen/ops/hardtanh_cpu_dispatch.h>
#include <ATen/ops/huber_loss_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/huber_loss_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_backward_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_cpu_dispatch.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/minimum_cpu_dispatch.h>
#include <ATen/ops/mse_loss_backward_cpu_dispatch.h>
#include <ATen/ops/mse_loss_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/relu_cpu_dispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/smooth_l1_loss_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/smooth_l1_loss_cpu_dispatch.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/overrides.h"
#include "master/aten/tensor.h"
#include "swamp/channel_norm.h"
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

// is_like() returns whether element i of a tensor belongs to that of x.
bool is_like(const Tensor& tensor, const Tensor& x) {
  return is_plain(tensor, x.scalar_type()) && tensor.sizes() == x.sizes() &&
         has_order_of(tensor, x) && is_aligned(address_of(tensor), 2);
}

// number_of() returns the number that all elements of a tensor are, if it is
// one number in memory that a float holds.
std::optional<float> number_of(const Tensor& tensor) {
  if (!is_plain(tensor, tensor.scalar_type()) || tensor.is_complex() ||
      is_lazy(tensor) || tensor.numel() == 0) {
    return {};
  }
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != 0) return {};
  }
  const double number = tensor.as_strided({}, {}).item().toDouble();
  const double most =
      at::isIntegralType(tensor.scalar_type(), true)
          ? 0x1p53
          : static_cast<double>(std::numeric_limits<float>::max());
  if (std::isfinite(number) && std::fabs(number) > most) return {};
  return static_cast<float>(number);
}

// as_floats() converts a number for each row.
Tensor as_floats(const Tensor& values) {
  const at::ScalarType type = values.scalar_type();
  if (!values.is_contiguous() || !is_half(type)) {
    return values.to(at::kFloat).contiguous();
  }
  const Tensor found =
      at::empty(values.sizes(), values.options().dtype(at::kFloat));
  auto* const to = static_cast<float*>(mutable_data(found));
  const auto convert = [&](const auto* from) {
    std::copy(from, from + values.numel(), to);
  };
  if (type == at::kHalf) {
    convert(static_cast<const at::Half*>(const_data(values)));
  } else {
    convert(static_cast<const at::BFloat16*>(const_data(values)));
  }
  return found;
}

// Second is the other operand of a function, and its memory.
struct Second {
  Tensor memory;
  std::int64_t columns = 1;
};

// set_number() sets the function of x alone that a sum with a number, or a
// product, is; it returns false if z is no number. PyTorch rounds a number that
// is added, and a factor that `is_first`, to the dtype, and refuses one beyond
// it.
bool set_number(const Tensor& x, const Tensor& z, PointwiseOptions& options,
                bool is_first) {
  const bool is_sum = options.function == Pointwise::sum;
  if (z.dim() != 0 || (!is_sum && options.function != Pointwise::product)) {
    return false;
  }
  const std::optional<float> number = number_of(z);
  if (!number) return false;
  float rounded = *number;
  if (is_sum || is_first) {
    rounded = x.scalar_type() == at::kHalf ? float{at::Half(*number)}
                                           : float{at::BFloat16(*number)};
    if (std::isinf(rounded) && !std::isinf(*number)) return false;
  }
  options.function = Pointwise::affine;
  if (is_sum) {
    options.beta *= rounded;
  } else {
    options.alpha = rounded;
    options.beta = -0.0f;
  }
  return true;
}

// find_second() sets the function of a number, or where z is for each element
// of x; it returns false if it would have to be copied for more than each row.
// `is_first` is whether z is PyTorch's first operand.
bool find_second(const Tensor& x, const Tensor& z, PointwiseOptions& options,
                 Second& second, bool is_first = false) {
  if (set_number(x, z, options, is_first)) return true;
  if (!is_plain(z, x.scalar_type()) || z.dim() == 0 || is_lazy(z) ||
      !is_aligned(address_of(z), 2)) {
    return false;
  }
  if (is_like(z, x)) {
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
    second.memory = as_floats(values);
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

// result_of() is empty_result(), unless PyTorch's function keeps the strides of
// x. The elements of a dense x have the same order in memory as those of its
// result.
Tensor result_of(const Tensor& x, bool keeps_strides = false) {
  return keeps_strides ? at::empty_like(x)
                       : empty_result(x.scalar_type(), {x});
}
template <class Function>
inline constexpr bool kKeepsStrides = false;

// result_of() is the same for several inputs, or nothing if the result has
// another order in memory than x.
std::optional<Tensor> result_of(const Tensor& x,
                                std::initializer_list<Tensor> inputs) {
  Tensor y = empty_result(x.scalar_type(), inputs);
  if (!has_order_of(y, x)) return {};
  return y;
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
    const Tensor y = result_of(x, kKeepsStrides<Function>);
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
// largest_of() returns the largest number of a 16-bit type, or of float32.
double largest_of(at::ScalarType type) {
  if (type == at::kHalf) return 65504;
  return type == at::kBFloat16
             ? static_cast<double>(std::numeric_limits<at::BFloat16>::max())
             : static_cast<double>(std::numeric_limits<float>::max());
}

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
    if (!(std::fabs(value) <= largest_of(type))) return false;
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
  static OptionalOptions gradient(at::ScalarType, const Scalar& low,
                                  const Scalar& high) {
    if (low.isComplex() || high.isComplex()) return {};
    return PointwiseOptions{Pointwise::between, low.to<float>(),
                            high.to<float>(), 1};
  }
};
template <>
inline constexpr bool kKeepsStrides<HardTanh> = true;
struct Relu {
  static OptionalOptions options(at::ScalarType type) {
    return Clamp::options(type, Scalar(0), {});
  }
};
// The gradient of relu(), too.
struct Threshold {
  static OptionalOptions gradient(at::ScalarType, const Scalar& threshold) {
    if (threshold.isComplex()) return {};
    return PointwiseOptions{Pointwise::above, threshold.to<float>()};
  }
};
struct HardSigmoid : Plain<Pointwise::hard_sigmoid> {
  static OptionalOptions gradient(at::ScalarType) {
    return PointwiseOptions{Pointwise::between, -3, 3, 1.0f / 6};
  }
};
struct LeakyRelu {
  static OptionalOptions options(at::ScalarType, const Scalar& slope) {
    if (slope.isComplex()) return {};
    return PointwiseOptions{Pointwise::leaky_relu, slope.to<float>()};
  }
  static OptionalOptions gradient(at::ScalarType, const Scalar& slope,
                                  bool is_result) {
    if (slope.isComplex()) return {};
    // The sign of the result says that of x only if the slope is not negative.
    if (is_result && !(slope.toDouble() >= 0)) return {};
    return PointwiseOptions{Pointwise::leaky_gradient, slope.to<float>()};
  }
};

// Gradients are functions of x and of the incoming gradient, which is z.
template <class Function, class... Args>
struct Gradient {
  template <Tensor (*kStock)(const Tensor&, const Tensor&, Args...)>
  static Tensor value(const Tensor& grad, const Tensor& x, Args... args) {
    OptionalOptions options;
    if (is_taken(x) && is_like(grad, x)) {
      options = Function::gradient(x.scalar_type(), args...);
    }
    if (!options) return kStock(grad, x, args...);
    const Guard guard;
    const auto y = result_of(x, {grad, x});
    if (!y) return kStock(grad, x, args...);
    options->matrix = const_data(grad);
    run(x, *y, *options);
    return *y;
  }
};

// ---- Functions of two operands

PointwiseOptions swapped(PointwiseOptions options) {
  std::swap(options.alpha, options.beta);
  return options;
}

// outer() is binary() of a row and a column, which `is_swapped` if the column
// is PyTorch's first operand.
std::optional<Tensor> outer(const Tensor& row, const Tensor& column,
                            PointwiseOptions options, bool is_swapped) {
  const at::ScalarType type = row.scalar_type();
  if (!is_half(type) || !is_switched(type) || !is_plain(row, type) ||
      !is_plain(column, type) || is_lazy(row) || is_lazy(column) ||
      row.dim() == 0 || column.dim() < 2 || column.size(-1) != 1 ||
      row.size(-1) != row.numel() || row.numel() < kLeastColumns ||
      row.dim() > column.dim() || row.stride(-1) != 1 ||
      !is_aligned(address_of(row), 2) || !is_aligned(address_of(column), 2) ||
      row.numel() * column.numel() < kLeastElements) {
    return {};
  }
  const Tensor y = is_swapped ? empty_result(type, {column, row})
                              : empty_result(type, {row, column});
  if (!y.is_contiguous()) return {};
  const Tensor values = as_floats(column);
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

// with_second() returns a function of x and z in the shape of x; nothing if it
// stays PyTorch's.
std::optional<Tensor> with_second(const Tensor& x, const Tensor& z,
                                  PointwiseOptions options,
                                  bool is_first = false) {
  Second second;
  if (!is_taken(x) || !find_second(x, z, options, second, is_first)) return {};
  const bool is_prelu = options.function == Pointwise::scaled_relu;
  const auto y = is_prelu   ? at::empty_like(x)
                 : is_first ? result_of(x, {z, x})
                            : result_of(x, {x, z});
  if (y) run(x, *y, options, second.columns);
  return y;
}

// binary() returns nothing if a function stays PyTorch's. One of the operands
// has the shape of the result, or they are a row and a column.
std::optional<Tensor> binary(const Tensor& a, const Tensor& b,
                             PointwiseOptions options) {
  if (!is_half(a.scalar_type()) && !is_half(b.scalar_type())) return {};
  const Guard guard;
  const bool is_first = a.numel() >= b.numel();
  if (!a.is_same_size(b) && a.dim() > 1 && a.size(-1) == 1) {
    if (auto y = outer(b, a, swapped(options), true)) return y;
  }
  if (!a.is_same_size(b) && b.dim() > 1 && b.size(-1) == 1) {
    if (auto y = outer(a, b, options, false)) return y;
  }
  return is_first ? with_second(a, b, options)
                  : with_second(b, a, swapped(options), true);
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

// is_factor() returns whether a number is a factor that a float holds, and a
// 16-bit type, if it is one.
bool is_factor(const Scalar& number, at::ScalarType type = at::kFloat) {
  return !number.isBoolean() && !number.isComplex() &&
         std::fabs(number.toDouble()) <= largest_of(type);
}

// is_sum() returns whether swamp adds or subtracts. PyTorch does not subtract
// truth values.
bool is_sum(int sign, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return is_factor(alpha, at::result_type(a, b)) &&
         (sign == 1 ||
          (a.scalar_type() != at::kBool && b.scalar_type() != at::kBool));
}
PointwiseOptions sum_with(int sign, const Scalar& alpha) {
  return {Pointwise::sum, 1, static_cast<float>(sign) * alpha.to<float>()};
}

template <int kSign,
          Tensor (*kStock)(const Tensor&, const Tensor&, const Scalar&)>
Tensor sum(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_sum(kSign, a, b, alpha)) {
    if (auto y = binary(a, b, sum_with(kSign, alpha))) return *y;
  }
  return kStock(a, b, alpha);
}
template <int kSign, Tensor& (*kStock)(Tensor&, const Tensor&, const Scalar&)>
Tensor& sum_(Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_sum(kSign, a, b, alpha) && binary_(a, b, sum_with(kSign, alpha))) {
    return a;
  }
  return kStock(a, b, alpha);
}

// extreme() returns the second of two equal numbers, as the vectors of
// PyTorch's kernel do; its loop over what is left returns the first.
template <Pointwise kFunction, Tensor (*kStock)(const Tensor&, const Tensor&)>
Tensor extreme(const Tensor& a, const Tensor& b) {
  if (is_taken(a)) {
    const Guard guard;
    if (auto y = with_second(a, b, {kFunction})) return *y;
  }
  return kStock(a, b);
}

// ---- Functions of three operands, which have one order in memory

bool are_taken(const Tensor& x, const Tensor& z, const Tensor& w) {
  return is_taken(x) && is_like(z, x) && is_like(w, x) && !is_lazy(z) &&
         !is_lazy(w);
}

// ternary() computes y, which is x or like it.
void ternary(const Tensor& x, const Tensor& z, const Tensor& w, const Tensor& y,
             PointwiseOptions options) {
  options.matrix = const_data(z);
  options.third = const_data(w);
  run(x, y, options);
}

template <Pointwise kFunction>
struct Ternary {
  template <Tensor (*kStock)(const Tensor&, const Tensor&, const Tensor&,
                             const Scalar&)>
  static Tensor value(const Tensor& x, const Tensor& z, const Tensor& w,
                      const Scalar& factor) {
    if (!is_factor(factor) || !are_taken(x, z, w)) {
      return kStock(x, z, w, factor);
    }
    const Guard guard;
    const auto y = result_of(x, {x, z, w});
    if (!y) return kStock(x, z, w, factor);
    ternary(x, z, w, *y, {kFunction, factor.to<float>()});
    return *y;
  }
  template <Tensor& (*kStock)(Tensor&, const Tensor&, const Tensor&,
                              const Scalar&)>
  static Tensor& in_place(Tensor& x, const Tensor& z, const Tensor& w,
                          const Scalar& factor) {
    if (!is_factor(factor) || !are_taken(x, z, w)) {
      return kStock(x, z, w, factor);
    }
    at::assert_no_partial_overlap(x, z);
    at::assert_no_partial_overlap(x, w);
    ternary(x, z, w, x, {kFunction, factor.to<float>()});
    return x;
  }
};

Tensor prelu(const Tensor& x, const Tensor& weight) {
  if (is_taken(x)) {
    const Guard guard;
    if (auto y = with_second(x, weight, {Pointwise::scaled_relu})) return *y;
  }
  return at::cpu::_prelu_kernel(x, weight);
}

// ---- Losses of differences: see Pointwise::loss. Function::of() has the
// arguments, and returns nothing for those that stay PyTorch's.

struct DifferenceLoss {
  double scale;
  float limit;
};
using OptionalLoss = std::optional<DifferenceLoss>;

OptionalLoss loss_of(double limit, bool is_divided) {
  if (!(limit > 1e-30 && limit < 1e30)) return {};
  return DifferenceLoss{is_divided ? 1 / limit : 1, static_cast<float>(limit)};
}
struct Mse {
  static OptionalLoss of() {
    return DifferenceLoss{2, std::numeric_limits<float>::infinity()};
  }
};
struct Huber {
  static OptionalLoss of(double delta) { return loss_of(delta, false); }
};
template <>
inline constexpr bool kKeepsStrides<Huber> = true;
struct SmoothL1 {
  static OptionalLoss of(double beta) { return loss_of(beta, true); }
};

template <class Function, class... Args>
struct Losses {
  template <Tensor (*kStock)(const Tensor&, const Tensor&, std::int64_t,
                             Args...)>
  static Tensor value(const Tensor& x, const Tensor& target,
                      std::int64_t reduction, Args... args) {
    const OptionalLoss loss = loss_for(x, target, reduction, args...);
    if (!loss) return kStock(x, target, reduction, args...);
    const Guard guard;
    // The loss of an infinite difference is not nan.
    const float limit =
        std::min(loss->limit, std::numeric_limits<float>::max());
    if (reduction == at::Reduction::None) {
      PointwiseOptions options{Pointwise::loss, static_cast<float>(loss->scale),
                               1, limit, const_data(target)};
      const Tensor y = result_of(x, kKeepsStrides<Function>);
      run(x, y, options);
      return y;
    }
    double sum = 0;
    const auto count = static_cast<std::size_t>(x.numel());
    translated([&] {
      swamp::sum({const_cast<void*>(const_data(x)), count,
                  *scalar_type(x.scalar_type())},
                 {1, count, 1}, &sum, nullptr, const_data(target), &limit,
                 true);
    });
    return at::scalar_tensor(sum * scale_of(*loss, x, reduction), x.options());
  }
  // Swamp computes it if the incoming gradient is one number or like x, and x
  // is contiguous, as PyTorch's result always is.
  template <Tensor (*kStock)(const Tensor&, const Tensor&, const Tensor&,
                             std::int64_t, Args...)>
  static Tensor gradient(const Tensor& grad, const Tensor& x,
                         const Tensor& target, std::int64_t reduction,
                         Args... args) {
    const Guard guard;
    const OptionalLoss loss = loss_for(x, target, reduction, args...);
    if (!loss || !x.is_contiguous() || !is_plain(grad, x.scalar_type()) ||
        (grad.dim() != 0 && grad.sizes() != x.sizes())) {
      return kStock(grad, x, target, reduction, args...);
    }
    const auto scale = static_cast<float>(scale_of(*loss, x, reduction));
    if (const std::optional<float> number = number_of(grad)) {
      const Tensor y = result_of(x);
      run(x, y,
          {Pointwise::difference, scale, *number, loss->limit,
           const_data(target)});
      return y;
    }
    if (!are_taken(x, target, grad)) {
      return kStock(grad, x, target, reduction, args...);
    }
    const Tensor y = result_of(x);
    ternary(x, target, grad, y,
            {Pointwise::difference_by, scale, 1, loss->limit});
    return y;
  }

 private:
  static OptionalLoss loss_for(const Tensor& x, const Tensor& target,
                               std::int64_t reduction, Args... args) {
    if (!is_taken(x) || !is_like(target, x) ||
        (reduction != at::Reduction::None && reduction != at::Reduction::Mean &&
         reduction != at::Reduction::Sum)) {
      return {};
    }
    return Function::of(args...);
  }
  static double scale_of(const DifferenceLoss& loss, const Tensor& x,
                         std::int64_t reduction) {
    return reduction == at::Reduction::Mean
               ? loss.scale / static_cast<double>(x.numel())
               : loss.scale;
  }
};

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
std::optional<Tensor> pointwise_lerp(const Tensor& a, const Tensor& b,
                                     const Scalar& weight) {
  if (!is_factor(weight) || !is_taken(a)) return {};
  const Guard guard;
  return with_second(a, b, {Pointwise::lerp, weight.to<float>()});
}
bool pointwise_lerp_(const Tensor& a, const Tensor& b, const Scalar& weight) {
  return is_factor(weight) &&
         binary_(a, b, {Pointwise::lerp, weight.to<float>()});
}
std::optional<Tensor> pointwise_lerp(const Tensor& a, const Tensor& b,
                                     const Tensor& weight) {
  if (!are_taken(a, b, weight)) return {};
  const Guard guard;
  const auto y = result_of(a, {a, b, weight});
  if (y) ternary(a, b, weight, *y, {Pointwise::lerp_by});
  return y;
}
bool pointwise_lerp_(const Tensor& a, const Tensor& b, const Tensor& weight) {
  if (!are_taken(a, b, weight)) return false;
  at::assert_no_partial_overlap(a, b);
  at::assert_no_partial_overlap(a, weight);
  ternary(a, b, weight, a, {Pointwise::lerp_by});
  return true;
}
Tensor pointwise_addcmul(const Tensor& a, const Tensor& b, const Tensor& c,
                         const Scalar& value) {
  return Ternary<Pointwise::sum_of_product>::value<&at::cpu::addcmul>(a, b, c,
                                                                      value);
}
Tensor& pointwise_addcmul_(Tensor& a, const Tensor& b, const Tensor& c,
                           const Scalar& value) {
  return Ternary<Pointwise::sum_of_product>::in_place<&at::cpu::addcmul_>(
      a, b, c, value);
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
  using AnyHardSigmoid = Unary<HardSigmoid>;
  SWAMP_OVERRIDE(AnyClamp, clamp);
  SWAMP_OVERRIDE(AnyClampMin, clamp_min);
  SWAMP_OVERRIDE(AnyClampMax, clamp_max);
  SWAMP_OVERRIDE(AnyHardTanh, hardtanh);
  SWAMP_OVERRIDE(AnyRelu, relu);
  SWAMP_OVERRIDE(AnyLeakyRelu, leaky_relu);
  SWAMP_OVERRIDE(HardSwish, hardswish);
  SWAMP_OVERRIDE(AnyHardSigmoid, hardsigmoid);
#undef SWAMP_OVERRIDE
#define SWAMP_OVERRIDE_GRADIENT(Type, name) \
  library.impl(#name "_backward", &Type::value<&at::cpu::name##_backward>)
  using ThresholdGradient = Gradient<Threshold, const Scalar&>;
  using HardTanhGradient = Gradient<HardTanh, const Scalar&, const Scalar&>;
  using HardSigmoidGradient = Gradient<HardSigmoid>;
  using LeakyReluGradient = Gradient<LeakyRelu, const Scalar&, bool>;
  SWAMP_OVERRIDE_GRADIENT(ThresholdGradient, threshold);
  SWAMP_OVERRIDE_GRADIENT(HardTanhGradient, hardtanh);
  SWAMP_OVERRIDE_GRADIENT(HardSigmoidGradient, hardsigmoid);
  SWAMP_OVERRIDE_GRADIENT(LeakyReluGradient, leaky_relu);
#undef SWAMP_OVERRIDE_GRADIENT
  library.impl("_prelu_kernel", &prelu);
  library.impl("maximum", &extreme<Pointwise::maximum, &at::cpu::maximum>);
  library.impl("minimum", &extreme<Pointwise::minimum, &at::cpu::minimum>);
  using Quotient = Ternary<Pointwise::sum_of_quotient>;
  library.impl("addcdiv", &Quotient::value<&at::cpu::addcdiv>);
  library.impl("addcdiv_", &Quotient::in_place<&at::cpu::addcdiv_>);
#define SWAMP_OVERRIDE_LOSS(Type, name, stock)       \
  library.impl(#name, &Type::value<&at::cpu::name>); \
  library.impl(#name "_backward", &Type::gradient<&at::stock::name##_backward>)
  using HuberLoss = Losses<Huber, double>;
  using SmoothL1Loss = Losses<SmoothL1, double>;
  SWAMP_OVERRIDE_LOSS(Losses<Mse>, mse_loss, cpu);
  SWAMP_OVERRIDE_LOSS(HuberLoss, huber_loss, compositeexplicitautograd);
  SWAMP_OVERRIDE_LOSS(SmoothL1Loss, smooth_l1_loss, compositeexplicitautograd);
#undef SWAMP_OVERRIDE_LOSS
}

}  // namespace swamp::aten
