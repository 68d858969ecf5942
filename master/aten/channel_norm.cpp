// PyTorch's sum, batch norm and group norm with their gradients, which are
// swamp's with `reproducible`: PyTorch's depend on the number of threads or on
// the CPU. mean() and the losses call sum(). Of float16, group norm and vector
// norm are also swamp's with `half_precision`, because PyTorch's are 3 to 10
// times slower than its float32's; so are means of 16 bits, for which PyTorch
// copies x to float32. Everything else, and wrong arguments, go to PyTorch's
// own kernels.
#include "swamp/channel_norm.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#include <ATen/ops/mean_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_cpu_dispatch.h>
#include <ATen/ops/native_group_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_group_norm_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/overrides.h"
#include "master/aten/row_tensors.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// is_replaced() returns whether x is a tensor of whose operators swamp replaces
// those that depend on the CPU, or one that is slow in 16 bits.
bool is_replaced(const Tensor& x, bool is_slow = false) {
  const at::ScalarType type = x.scalar_type();
  const bool is_taken = is_reproducible()
                            ? is_half(type) || type == at::kFloat
                            : is_slow && is_half(type) && is_switched(type) &&
                                  x.numel() >= kLeastElements;
  return is_taken && is_plain(x, type) && x.numel() != 0;
}

// How sums are computed: squares, and float32 sums of 16 bits, are of the last
// dimensions, the latter of rows that are long enough.
enum class Terms { kPlain, kSquares, kNarrow };

// sum_of() adds up the dimensions of `mask`. It returns a float64 tensor of the
// others, or nothing if each has one element, or if the terms are not those of
// the last dimensions, but have to be.
std::optional<Tensor> sum_of(const Tensor& x, const std::vector<bool>& mask,
                             Terms terms) {
  Tensor from;
  // The sizes of runs of dimensions that are added up, or kept.
  std::vector<std::int64_t> sizes;
  std::vector<bool> is_summed;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    const bool summed = mask[static_cast<std::size_t>(d)];
    if (x.size(d) == 1) continue;
    if (sizes.empty() || is_summed.back() != summed) {
      sizes.push_back(1);
      is_summed.push_back(summed);
    }
    sizes.back() *= x.size(d);
  }
  // The last run first.
  for (std::size_t run = sizes.size(); run-- > 0;) {
    if (!is_summed[run]) continue;
    if (!from.defined()) from = row_major(x);
    SumShape shape;
    shape.terms = static_cast<std::size_t>(sizes[run]);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (i == run) continue;
      (i < run ? shape.outer : shape.inner) *=
          static_cast<std::size_t>(sizes[i]);
    }
    if (terms != Terms::kPlain && shape.inner != 1) return {};
    if (terms == Terms::kNarrow && shape.terms < 2 * kLeastColumns) return {};
    const Tensor sums =
        at::empty({static_cast<std::int64_t>(shape.outer * shape.inner)},
                  x.options().dtype(at::kDouble));
    translated([&] {
      const void* const data = const_data(from);
      swamp::sum(
          {const_cast<void*>(data), static_cast<std::size_t>(from.numel()),
           *scalar_type(from.scalar_type())},
          shape, static_cast<double*>(mutable_data(sums)), nullptr,
          terms == Terms::kSquares ? data : nullptr, nullptr,
          terms == Terms::kNarrow);
    });
    terms = Terms::kPlain;
    from = sums;
    sizes[run] = 1;
  }
  if (!from.defined()) return {};
  return from;
}

// summed() returns the sum, or the root of the sum of squares, in the shape
// that PyTorch's has, or nothing if it is not swamp's. A narrower dtype than
// x's would round each element first.
std::optional<Tensor> summed(const Tensor& x, at::OptionalIntArrayRef dim,
                             bool keepdim, std::optional<at::ScalarType> dtype,
                             bool is_norm = false) {
  if (!is_replaced(x, is_norm)) return {};
  const at::ScalarType to = dtype.value_or(x.scalar_type());
  if (to != x.scalar_type() && to != at::kFloat && to != at::kDouble) return {};
  const auto mask = mask_of(x, dim);
  if (!mask) return {};
  const std::optional<Tensor> sums =
      sum_of(x, *mask, is_norm ? Terms::kSquares : Terms::kPlain);
  if (!sums.has_value()) return {};
  return (is_norm ? sums->sqrt() : *sums)
      .to(to)
      .view(reduced_sizes(x, *mask, keepdim));
}

// as_it_lies() returns a tensor whose dimensions are in the order of memory,
// and their mask; x itself if those that are kept would change their order.
std::pair<Tensor, std::vector<bool>> as_it_lies(const Tensor& x,
                                                const std::vector<bool>& mask) {
  if (x.is_contiguous()) return {x, mask};
  std::vector<std::int64_t> order(static_cast<std::size_t>(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return x.stride(a) > x.stride(b); });
  std::vector<bool> found;
  std::int64_t last = -1;
  for (const std::int64_t d : order) {
    const bool is_reduced = mask[static_cast<std::size_t>(d)];
    found.push_back(is_reduced);
    if (is_reduced) continue;
    if (d < last) return {x, mask};
    last = d;
  }
  return {x.permute(order), found};
}

// narrow_sum() returns a sum or mean from float32 sums, or nothing if it is not
// swamp's. PyTorch's sums are fast unless other dimensions lie between, or of a
// few terms in lines.
std::optional<Tensor> narrow_sum(const Tensor& x, at::OptionalIntArrayRef dim,
                                 bool keepdim,
                                 std::optional<at::ScalarType> dtype,
                                 bool is_mean) {
  const at::ScalarType type = x.scalar_type();
  if (!is_half(type) || !is_half_precision() || is_reproducible() ||
      !is_plain(x, type) || x.numel() < kLeastElements ||
      dtype.value_or(type) != type || !is_dense(x) ||
      !is_aligned(address_of(x), 2)) {
    return {};
  }
  const auto mask = mask_of(x, dim);
  if (!mask) return {};
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto [from, lies] = as_it_lies(x, *mask);
  if (!from.is_contiguous()) return {};
  const std::optional<SumShape> shape = shape_of(from.sizes(), lies);
  // PyTorch's means copy x to float32; its sums of columns are fast of many.
  const std::size_t most = is_mean || type == at::kBFloat16 ? 32 : 8;
  if (shape && shape->terms > 1 && shape->terms <= most &&
      x.numel() >= 2 * kLeastElements &&
      shape->inner >= static_cast<std::size_t>(kLeastColumns)) {
    return column_sums(from, *shape,
                       is_mean ? static_cast<float>(shape->terms) : 1.0f,
                       reduced_sizes(x, *mask, keepdim));
  }
  if (!is_mean && shape) return {};
  constexpr std::size_t kShortLine = 16;
  std::optional<Tensor> sums = sum_of(from, lies, Terms::kNarrow);
  if (!sums && is_mean && !lies.back() &&
      (!shape || shape->inner >= kShortLine)) {
    sums = sum_of(from, lies, Terms::kPlain);
  }
  if (!sums) return {};
  const auto count =
      is_mean ? static_cast<float>(x.numel() / sums->numel()) : 1.0f;
  return rounded(static_cast<const double*>(const_data(*sums)), x, *mask,
                 keepdim, count);
}

Tensor sum(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim,
           std::optional<at::ScalarType> dtype) {
  std::optional<Tensor> result = narrow_sum(x, dim, keepdim, dtype, false);
  if (!result) result = summed(x, dim, keepdim, dtype);
  return result.has_value() ? *result : at::cpu::sum(x, dim, keepdim, dtype);
}

Tensor mean(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim,
            std::optional<at::ScalarType> dtype) {
  const std::optional<Tensor> result =
      narrow_sum(x, dim, keepdim, dtype, true);
  return result.has_value() ? *result : at::cpu::mean(x, dim, keepdim, dtype);
}

Tensor& sum_out(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim,
                std::optional<at::ScalarType> dtype, Tensor& out) {
  std::optional<Tensor> result;
  if (out.scalar_type() == dtype.value_or(out.scalar_type())) {
    result = summed(x, dim, keepdim, out.scalar_type());
  }
  if (!result.has_value()) {
    return at::cpu::sum_outf(x, dim, keepdim, dtype, out);
  }
  return write_out(*result, {}, out);
}

Tensor vector_norm(const Tensor& x, const at::Scalar& order,
                   at::OptionalIntArrayRef dim, bool keepdim,
                   std::optional<at::ScalarType> dtype) {
  std::optional<Tensor> result;
  if (x.scalar_type() == at::kHalf && !order.isComplex() &&
      order.toDouble() == 2) {
    result = summed(x, dim, keepdim, dtype, true);
  }
  return result.has_value()
             ? *result
             : at::cpu::linalg_vector_norm(x, order, dim, keepdim, dtype);
}

// ---- Norms

// Floats is a tensor of one value for each channel or group, as float32.
struct Floats {
  explicit Floats(const OptionalTensor& values) {
    if (is_defined(values)) values_ = row_major(values->to(at::kFloat));
  }
  const float* data() const { return values_of<float>(values_); }

 private:
  Tensor values_;
};

Tensor new_floats(const Tensor& x, std::int64_t count) {
  return at::empty({count}, x.options().dtype(at::kFloat));
}

// ChannelRows is a tensor as rows of channels, or, if `last`, with the channels
// last. A tensor with one position has the channels as rows and the images as
// columns.
struct ChannelRows {
  ChannelRows(const Tensor& x, std::int64_t images, std::int64_t channels,
              std::int64_t groups, bool last = false)
      : is_turned(groups == 0 && x.numel() == images * channels),
        is_last(last && !is_turned) {
    rows = is_turned ? x.reshape({images, channels}).t()
           : is_last ? x.movedim(1, -1)
                     : x;
    rows = row_major(rows);
    shape = {static_cast<std::size_t>(channels),
             static_cast<std::size_t>(groups), is_last};
    const auto count =
        static_cast<std::size_t>(is_turned ? channels : images * channels);
    matrix = {const_cast<void*>(const_data(rows)), count,
              static_cast<std::size_t>(x.numel()) / count,
              *scalar_type(x.scalar_type())};
  }
  // result() makes a tensor like x from rows like these.
  Tensor result(const Tensor& y, const Tensor& x) const {
    const Tensor values = is_turned ? y.t().reshape(x.sizes())
                          : is_last ? y.movedim(-1, 1)
                                    : y.view(x.sizes());
    return with_strides_of(
        at::empty(x.sizes(), x.options(), x.suggest_memory_format()), values);
  }
  // empty() returns a result's rows, with their matrix.
  std::pair<Tensor, Matrix> empty() const {
    Tensor y = at::empty(rows.sizes(), rows.options());
    Matrix to = matrix;
    to.data = mutable_data(y);
    return {y, to};
  }

  bool is_turned, is_last;
  Tensor rows;
  ChannelShape shape;
  Matrix matrix;
};

// with_images() calls compute() with x as it lies in memory, or with its rows,
// if a line has too few channels that are last, or if LDM is too small for the
// positions of one.
template <class Compute>
Three with_images(const Tensor& x, const Compute& compute) {
  constexpr std::int64_t kLeastChannels = 16;  // fewer are transposed faster
  const at::MemoryFormat format = x.suggest_memory_format();
  if (format != at::MemoryFormat::Contiguous && x.size(1) >= kLeastChannels &&
      x.is_contiguous(format)) {
    try {
      return compute(ChannelRows(x, x.size(0), x.size(1), 0, true));
    } catch (const c10::NotImplementedError&) {
    }
  }
  return compute(ChannelRows(x, x.size(0), x.size(1), 0));
}

// have_values() returns whether each of some vectors is absent or has a value
// for each channel, all in the dtype of x or all in float32.
bool have_values(const Tensor& x, std::int64_t channels,
                 std::initializer_list<const OptionalTensor*> vectors) {
  std::optional<at::ScalarType> type;
  for (const OptionalTensor* vector : vectors) {
    if (!is_defined(*vector)) continue;
    const at::ScalarType here = (*vector)->scalar_type();
    if ((here != x.scalar_type() && here != at::kFloat) ||
        here != type.value_or(here) || !is_plain(**vector, here) ||
        (*vector)->numel() != channels || is_lazy(**vector)) {
      return false;
    }
    type = here;
  }
  return true;
}

// statistics_type() returns the dtype of the statistics that PyTorch saves.
at::ScalarType statistics_type(
    const Tensor& x, std::initializer_list<const OptionalTensor*> vectors) {
  for (const OptionalTensor* vector : vectors) {
    if (is_defined(*vector)) return (*vector)->scalar_type();
  }
  return x.scalar_type();
}

// Statistics is the mean and rstd of channels or groups.
struct Statistics {
  Tensor mean, rstd, variance;

  // Of x itself.
  Statistics(const Tensor& x, const ChannelRows& in, double eps)
      : Statistics(x, in) {
    translated([&] {
      swamp::channel_statistics(in.matrix, in.shape, eps, data_of<float>(mean),
                                data_of<float>(variance), data_of<float>(rstd));
    });
  }
  // Running ones.
  Statistics(const Tensor& x, const ChannelRows& in, const Tensor& running_mean,
             const Tensor& running_var, double eps)
      : Statistics(x, in) {
    mean.copy_(running_mean);
    variance.copy_(running_var);
    for (std::int64_t c = 0; c < mean.numel(); ++c) {
      data_of<float>(rstd)[c] = static_cast<float>(
          1.0 /
          std::sqrt(static_cast<double>(data_of<float>(variance)[c]) + eps));
    }
  }

 private:
  Statistics(const Tensor& x, const ChannelRows& in) {
    const auto count =
        static_cast<std::int64_t>(in.shape.statistics(in.matrix.rows));
    mean = new_floats(x, count);
    rstd = new_floats(x, count);
    variance = new_floats(x, count);
  }
};

Tensor normalized(const Tensor& x, const ChannelRows& in,
                  const Statistics& statistics, const OptionalTensor& weight,
                  const OptionalTensor& bias) {
  const std::pair<Tensor, Matrix> y = in.empty();
  const Floats w(weight), b(bias);
  translated([&] {
    swamp::channel_norm(in.matrix, in.shape, data_of<float>(statistics.mean),
                        data_of<float>(statistics.rstd), w.data(), b.data(),
                        y.second);
  });
  return in.result(y.first, x);
}

// gradients() returns those of x, weight and bias that `wanted` names.
Three gradients(const Tensor& grad, const Tensor& x, const ChannelRows& in,
                std::int64_t images, const Tensor& mean, const Tensor& rstd,
                const OptionalTensor& weight, bool is_fixed,
                std::array<bool, 3> wanted) {
  const auto channels = static_cast<std::int64_t>(in.shape.channels);
  const ChannelRows gradient(grad, images, channels,
                             static_cast<std::int64_t>(in.shape.groups),
                             in.is_last);
  Tensor dx;
  Matrix dx_rows = gradient.matrix;
  dx_rows.data = nullptr;
  if (wanted[0]) std::tie(dx, dx_rows) = gradient.empty();
  const Floats w(weight);
  const Tensor dweight = wanted[1] ? new_floats(x, channels) : Tensor(),
               dbias = wanted[2] ? new_floats(x, channels) : Tensor();
  translated([&] {
    swamp::channel_norm_backward(
        gradient.matrix, in.matrix, in.shape, data_of<float>(mean),
        data_of<float>(rstd), w.data(), is_fixed, dx_rows,
        data_of<float>(dweight), data_of<float>(dbias));
  });
  const at::ScalarType type =
      is_defined(weight) ? weight->scalar_type() : x.scalar_type();
  return {wanted[0] ? in.result(dx, x) : Tensor(),
          wanted[1] ? dweight.to(type) : Tensor(),
          wanted[2] ? dbias.to(type) : Tensor()};
}

void update(const OptionalTensor& running, const Tensor& values,
            double momentum) {
  if (!is_defined(running)) return;
  const Tensor now = running->to(at::kFloat).mul(1 - momentum);
  running->copy_(now.add(values.mul(momentum)));
}

Three batch_norm(const Tensor& x, const OptionalTensor& weight,
                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                 const OptionalTensor& running_var, bool training,
                 double momentum, double eps) {
  const bool has_running = is_defined(running_mean) && is_defined(running_var);
  if (!is_replaced(x) || x.dim() < 2 || (!training && !has_running) ||
      !have_values(x, x.size(1),
                   {&weight, &bias, &running_mean, &running_var})) {
    return at::cpu::native_batch_norm(x, weight, bias, running_mean,
                                      running_var, training, momentum, eps);
  }
  const auto saved = x.options().dtype(
      statistics_type(x, {&weight, &bias, &running_mean, &running_var}));
  return with_images(x, [&](const ChannelRows& in) -> Three {
    if (!training) {
      const Statistics running(x, in, *running_mean, *running_var, eps);
      return {normalized(x, in, running, weight, bias), at::empty({0}, saved),
              at::empty({0}, saved)};
    }
    const Statistics own(x, in, eps);
    Tensor y = normalized(x, in, own, weight, bias);
    const auto count = static_cast<double>(x.numel() / x.size(1));
    update(running_mean, own.mean, momentum);
    update(running_var, own.variance.mul(count / (count - 1)), momentum);
    return {y, own.mean.to(saved), own.rstd.to(saved)};
  });
}

Three batch_norm_backward(const Tensor& grad, const Tensor& x,
                          const OptionalTensor& weight,
                          const OptionalTensor& running_mean,
                          const OptionalTensor& running_var,
                          const OptionalTensor& save_mean,
                          const OptionalTensor& save_rstd, bool train,
                          double eps, std::array<bool, 3> wanted) {
  const bool has_running = is_defined(running_mean) && is_defined(running_var);
  if (!is_replaced(x) || x.dim() < 2 || !is_plain(grad, x.scalar_type()) ||
      grad.sizes() != x.sizes() || (!train && !has_running) ||
      !have_values(x, x.size(1), {&weight, &running_mean, &running_var}) ||
      (train && !have_values(x, x.size(1), {&save_mean, &save_rstd}))) {
    return at::cpu::native_batch_norm_backward(grad, x, weight, running_mean,
                                               running_var, save_mean,
                                               save_rstd, train, eps, wanted);
  }
  return with_images(x, [&](const ChannelRows& in) {
    if (train && is_defined(save_mean) && is_defined(save_rstd) &&
        save_mean->scalar_type() == at::kFloat) {
      return gradients(grad, x, in, x.size(0), row_major(*save_mean),
                       row_major(*save_rstd), weight, false, wanted);
    }
    // Statistics that were rounded to 16 bits are computed again.
    const Statistics used =
        train ? Statistics(x, in, eps)
              : Statistics(x, in, *running_mean, *running_var, eps);
    return gradients(grad, x, in, x.size(0), used.mean, used.rstd, weight,
                     !train, wanted);
  });
}

// Of bfloat16 PyTorch's are slow if the channels are last.
bool has_groups(const Tensor& x, std::int64_t images, std::int64_t channels,
                std::int64_t positions, std::int64_t groups) {
  const bool is_slow =
      x.scalar_type() == at::kHalf ||
      x.suggest_memory_format() != at::MemoryFormat::Contiguous;
  return is_replaced(x, is_slow) && groups > 0 && images > 0 && channels > 0 &&
         channels % groups == 0 && x.numel() == images * channels * positions;
}

Three group_norm(const Tensor& x, const OptionalTensor& weight,
                 const OptionalTensor& bias, std::int64_t images,
                 std::int64_t channels, std::int64_t positions,
                 std::int64_t groups, double eps) {
  if (!has_groups(x, images, channels, positions, groups) ||
      !have_values(x, channels, {&weight, &bias})) {
    return at::cpu::native_group_norm(x, weight, bias, images, channels,
                                      positions, groups, eps);
  }
  const ChannelRows in(x, images, channels, groups);
  const auto saved = x.options().dtype(statistics_type(x, {&weight, &bias}));
  const Statistics own(x, in, eps);
  return {normalized(x, in, own, weight, bias),
          own.mean.to(saved).view({images, groups}),
          own.rstd.to(saved).view({images, groups})};
}

Three group_norm_backward(const Tensor& grad, const Tensor& x,
                          const Tensor& mean, const Tensor& rstd,
                          const OptionalTensor& weight, std::int64_t images,
                          std::int64_t channels, std::int64_t positions,
                          std::int64_t groups, std::array<bool, 3> wanted) {
  // Without eps, statistics of 16 bits can't be computed again.
  if (!has_groups(x, images, channels, positions, groups) ||
      !is_plain(grad, x.scalar_type()) || grad.sizes() != x.sizes() ||
      !have_values(x, channels, {&weight})) {
    return at::cpu::native_group_norm_backward(grad, x, mean, rstd, weight,
                                               images, channels, positions,
                                               groups, wanted);
  }
  const ChannelRows in(x, images, channels, groups);
  return gradients(grad, x, in, images, row_major(mean.to(at::kFloat)),
                   row_major(rstd.to(at::kFloat)), weight, false, wanted);
}

}  // namespace

std::optional<std::vector<bool>> mask_of(const Tensor& x,
                                         at::OptionalIntArrayRef dim) {
  std::vector<bool> mask(static_cast<std::size_t>(x.dim()),
                         !dim.has_value() || dim->empty());
  if (!dim.has_value()) return mask;
  for (const std::int64_t d : *dim) {
    if (d < -x.dim() || d >= x.dim()) return {};
    auto&& one = mask[static_cast<std::size_t>(d < 0 ? d + x.dim() : d)];
    if (one) return {};
    one = true;
  }
  return mask;
}

std::optional<SumShape> shape_of(at::IntArrayRef sizes,
                                 const std::vector<bool>& mask) {
  SumShape shape{1, 1, 1};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const auto size = static_cast<std::size_t>(sizes[d]);
    if (size == 1) continue;
    if (mask[d]) {
      if (shape.inner != 1) return {};
      shape.terms *= size;
    } else {
      (shape.terms == 1 ? shape.outer : shape.inner) *= size;
    }
  }
  return shape;
}

std::vector<std::int64_t> reduced_sizes(const Tensor& x,
                                        const std::vector<bool>& mask,
                                        bool keepdim) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (!mask[static_cast<std::size_t>(d)]) {
      sizes.push_back(x.size(d));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

Tensor rounded(const double* numbers, const Tensor& x,
               const std::vector<bool>& mask, bool keeps, float divisor) {
  const Tensor y = at::empty(reduced_sizes(x, mask, keeps), x.options());
  const auto round = [&](auto* to) {
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      to[i] = static_cast<float>(numbers[i]) / divisor;
    }
  };
  if (x.scalar_type() == at::kHalf) {
    round(static_cast<at::Half*>(mutable_data(y)));
  } else {
    round(static_cast<at::BFloat16*>(mutable_data(y)));
  }
  return y;
}

void register_channels(torch::Library& library) {
  library.impl("sum.dim_IntList", &sum);
  library.impl("sum.IntList_out", &sum_out);
  library.impl("mean.dim", &mean);
  library.impl("linalg_vector_norm", &vector_norm);
  library.impl("native_batch_norm", &batch_norm);
  library.impl("native_batch_norm_backward", &batch_norm_backward);
  library.impl("native_group_norm", &group_norm);
  library.impl("native_group_norm_backward", &group_norm_backward);
}

}  // namespace swamp::aten
