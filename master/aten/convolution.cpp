// PyTorch's convolution and convolution_backward, of 1 to 3 dimensions. A
// convolution relates a large tensor, over which a window moves, a small one,
// with an element for each position of the window, and a weight. Each of the
// three is a matrix product of the other two, one of them gathered from windows
// (im2col):
//   small  = windows of the large one * weight
//   large  = windows of the small one * weight
//   weight = transposed windows of the large one * small
// A convolution computes the small tensor, a transposed convolution the large
// one, and the gradients are the other two. In the factors the channels come
// last, and padding is zeros, so the bits do not depend on the memory format:
// the terms of a window are in the order of the kernel's positions, at each of
// them the channels; those of a weight in the order of images and positions.
// Groups of few channels are computed directly (swamp/convolution.h), with the
// same bits, from and to the tensors as they are.
#include "swamp/convolution.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/tensor.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Indices = std::vector<std::int64_t>;
constexpr int kAxes = 3;  // depth, height, width; those absent have size 1

std::size_t size_of(std::int64_t size) {
  return static_cast<std::size_t>(size);
}

// Axis is one dimension of a convolution. Position i of the kernel at position
// j of the small tensor is at j * stride + i * dilation - padding of the large.
struct Axis {
  std::int64_t large = 1, small = 1, kernel = 1;
  std::int64_t stride = 1, padding = 0, dilation = 1;
};

// with_axes() is [images, channels, ...] with all three axes.
Tensor with_axes(const Tensor& x) {
  Tensor all = x;
  while (all.dim() < 2 + kAxes) all = all.unsqueeze(2);
  return all;
}

// transposed() is `x`, of the shape [images, rows, columns] and dense, with the
// last two exchanged in memory.
Tensor transposed(const Tensor& x) {
  const Tensor result =
      at::empty({x.size(0), x.size(2), x.size(1)}, x.options());
  translated([&] {
    transpose(size_of(x.size(0)), size_of(x.size(1)), size_of(x.size(2)),
              *scalar_type(x.scalar_type()), const_data(x),
              mutable_data(result));
  });
  return result;
}

// channels_last() is [images, depth, height, width, channels], dense, with so
// many zeros before and after the positions of each axis.
Tensor channels_last(const Tensor& x,
                     const std::array<std::int64_t, kAxes>& before = {},
                     const std::array<std::int64_t, kAxes>& after = {}) {
  Tensor last = with_axes(x).permute({0, 2, 3, 4, 1});
  Indices sizes = last.sizes().vec();
  for (int i = 0; i < kAxes; ++i) sizes[size_of(i) + 1] += before[i] + after[i];
  // Between zeros PyTorch copies 16 bits more slowly than swamp and then
  // PyTorch once more, but not 32.
  const bool is_padded = sizes != last.sizes();
  if (x.is_contiguous() && !last.is_contiguous() &&
      (!is_padded || x.element_size() == 2)) {
    last = transposed(x.flatten(2)).view(last.sizes());
  }
  if (!is_padded) return last.contiguous();
  const Tensor padded = at::empty(sizes, last.options());
  Tensor inner = padded;
  for (int i = 0; i < kAxes; ++i) {
    const std::int64_t size = last.size(i + 1);
    inner.narrow(i + 1, 0, before[i]).zero_();
    inner.narrow(i + 1, before[i] + size, after[i]).zero_();
    inner = inner.narrow(i + 1, before[i], size);
  }
  inner.copy_(last);
  return padded;
}

Indices range(std::int64_t count, std::int64_t step = 1) {
  Indices indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * step);
  return indices;
}

// places_in() is where positions of a tensor with the channels last are, in
// elements.
std::vector<std::size_t> places_in(const Tensor& x, std::int64_t images,
                                   const std::array<Indices, kAxes>& at) {
  std::vector<std::size_t> places;
  places.reserve(size_of(images) * at[0].size() * at[1].size() * at[2].size());
  for (std::int64_t n = 0; n < images; ++n) {
    for (const std::int64_t d : at[0]) {
      for (const std::int64_t h : at[1]) {
        for (const std::int64_t w : at[2]) {
          places.push_back(size_of(n * x.stride(0) + d * x.stride(1) +
                                   h * x.stride(2) + w * x.stride(3)));
        }
      }
    }
  }
  return places;
}

Matrices matrices_of(const Tensor& x, std::int64_t batch, std::int64_t rows,
                     std::int64_t columns, std::int64_t batch_step,
                     std::int64_t row_step, std::int64_t column_step) {
  return {const_cast<void*>(const_data(x)),
          size_of(batch),
          size_of(rows),
          size_of(columns),
          size_of(batch_step),
          size_of(row_step),
          size_of(column_step),
          *scalar_type(x.scalar_type())};
}

void multiply(const Matrices& out, const Matrices& a, const Matrices& b,
              const Matrices* bias = nullptr, const Gather* gather = nullptr) {
  translated([&] { product(out, a, b, {1, 1, bias, gather}); });
}

// is_supported() returns whether the call did not find LDM too small, or a size
// or step too large.
template <class Call>
bool is_supported(const Call& call) {
  return translated([&] {
    try {
      call();
    } catch (const Error& error) {
      if (error.status() != SWAMP_UNSUPPORTED) throw;
      return false;
    }
    return true;
  });
}

// Convolution is the shapes. The tensors are PyTorch's: large [images,
// channels, ...], small [images, filters, ...], and weight [filters, channels /
// groups, ...].
struct Convolution {
  std::array<Axis, kAxes> axes;
  std::int64_t images, channels, filters, groups;

  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t group_filters() const { return filters / groups; }

  template <class Value>
  std::int64_t product_of(Value value) const {
    std::int64_t result = 1;
    for (const Axis& axis : axes) result *= value(axis);
    return result;
  }
  std::int64_t kernel_size() const {
    return product_of([](const Axis& axis) { return axis.kernel; });
  }
  std::int64_t small_size() const {
    return product_of([](const Axis& axis) { return axis.small; });
  }

  // A pointwise convolution is a product of the tensors as they are. With an
  // output padding the large tensor has positions that no window reads.
  bool is_pointwise() const {
    return std::all_of(axes.begin(), axes.end(), [](const Axis& axis) {
      return axis.kernel == 1 && axis.stride == 1 && axis.padding == 0 &&
             axis.large == axis.small;
    });
  }
  // An image is then a matrix of channels and positions.
  bool is_by_image(const Tensor& x) const {
    return is_pointwise() && groups == 1 && x.is_contiguous();
  }

  // A bias of `count` channels, for a result with the channels last.
  std::optional<Matrices> bias_of(const OptionalTensor& bias, std::int64_t rows,
                                  std::int64_t count, bool by_image) const {
    if (!bias.has_value() || !bias->defined()) return std::nullopt;
    const std::int64_t step = bias->stride(0);
    return by_image ? matrices_of(*bias, images, count, rows, 0, step, 0)
                    : matrices_of(*bias, groups, rows, count / groups,
                                  count / groups * step, 0, step);
  }

  // is_direct() returns whether a group has too few channels for a panel of a
  // product, or the large tensor so few that gathering its windows, which
  // overlap, takes longer than the product.
  bool is_direct() const {
    constexpr std::int64_t kFew = 32, kImage = 4;
    const bool overlap =
        std::any_of(axes.begin(), axes.end(),
                    [](const Axis& axis) { return axis.kernel > axis.stride; });
    return axes[0].large == 1 && axes[0].small == 1 && axes[0].kernel == 1 &&
           axes[0].padding == 0 &&
           (groups == 1 ? channels <= kImage && overlap
                        : std::max(group_channels(), group_filters()) < kFew);
  }
  // direct() is the shapes of the small tensor, or of the large one, computed
  // from x, the other one. y is the result, or its gradient.
  swamp::Convolution direct(bool small, const Tensor& x,
                            const Tensor& y) const {
    swamp::Convolution one;
    one.images = size_of(images);
    one.channels = size_of(small ? channels : filters);
    one.filters = size_of(small ? filters : channels);
    one.groups = size_of(groups);
    const auto dimension = [&](const Axis& axis) -> ConvolutionDimension {
      const std::size_t in = size_of(small ? axis.large : axis.small),
                        out = size_of(small ? axis.small : axis.large),
                        kernel = size_of(axis.kernel);
      if (small) {
        return {in, out, kernel, axis.stride, axis.dilation, -axis.padding, 1};
      }
      return {in, out, kernel, 1, -axis.dilation, axis.padding, axis.stride};
    };
    one.height = dimension(axes[1]);
    one.width = dimension(axes[2]);
    one.dtype = *scalar_type(x.scalar_type());
    one.x_channels_last = !x.is_contiguous();
    one.out_channels_last = !y.is_contiguous();
    return one;
  }
  // dense() is x, or a copy, with the channels last or not.
  static Tensor dense(const Tensor& x) {
    return x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast)
               ? x
               : x.contiguous();
  }
  // directly() computes the small tensor, or the large one, from x. The result
  // is undefined if that is not possible.
  Tensor directly(bool small, const Tensor& from, const Tensor& weight,
                  const OptionalTensor& bias, at::MemoryFormat format) const {
    if (!is_direct()) return {};
    const Tensor x = dense(from);
    Indices sizes = x.sizes().vec();
    sizes[1] = small ? filters : channels;
    for (std::size_t i = 2; i < sizes.size(); ++i) {
      const Axis& axis = axes[kAxes - sizes.size() + i];
      sizes[i] = small ? axis.small : axis.large;
    }
    const Tensor result = at::empty(sizes, x.options(), format);
    const Tensor w =
        small ? channels_last(weight)
              : with_axes(weight)
                    .reshape({groups, group_filters(), group_channels(), 1,
                              axes[1].kernel, axes[2].kernel})
                    .permute({0, 2, 3, 4, 5, 1})
                    .contiguous();
    const Tensor added =
        bias.has_value() && bias->defined() ? bias->contiguous() : Tensor();
    const bool supported = is_supported([&] {
      convolve(direct(small, x, result), const_data(x), const_data(w),
               added.defined() ? const_data(added) : nullptr,
               const_cast<void*>(const_data(result)));
    });
    return supported ? result : Tensor();
  }

  // padded() is the large tensor with the zeros that the windows read.
  Tensor padded(const Tensor& large) const {
    std::array<std::int64_t, kAxes> before{}, after{};
    for (int i = 0; i < kAxes; ++i) {
      const Axis& axis = axes[i];
      before[i] = axis.padding;
      const std::int64_t end = (axis.small - 1) * axis.stride +
                               (axis.kernel - 1) * axis.dilation + 1;
      after[i] = std::max<std::int64_t>(0, end - axis.padding - axis.large);
    }
    return channels_last(large, before, after);
  }

  // Windows are places of the windows' terms in a padded large tensor.
  struct Windows {
    std::vector<std::size_t> positions, terms;
    std::size_t run;  // terms that are neighbours
  };
  Windows windows(const Tensor& x) const {
    std::array<Indices, kAxes> positions, terms;
    for (int i = 0; i < kAxes; ++i) {
      positions[i] = range(axes[i].small, axes[i].stride);
      terms[i] = range(axes[i].kernel, axes[i].dilation);
    }
    std::int64_t run = group_channels();
    if (groups == 1 && axes[2].dilation == 1) {
      run *= axes[2].kernel;
      terms[2] = {0};
    }
    return {places_in(x, images, positions), places_in(x, 1, terms),
            size_of(run)};
  }

  // product_by_image() is the weight times each image of x, with `results`
  // channels; row_step and column_step are those of the weight.
  Tensor product_by_image(const Tensor& x, const Tensor& weight,
                          const OptionalTensor& bias, std::int64_t results,
                          std::int64_t row_step,
                          std::int64_t column_step) const {
    const std::int64_t positions = small_size(), terms = x.size(1);
    std::vector<std::int64_t> sizes = with_axes(x).sizes().vec();
    sizes[1] = results;
    const Tensor result = at::empty(sizes, x.options());
    const auto added = bias_of(bias, positions, results, true);
    multiply(matrices_of(result, images, results, positions,
                         results * positions, positions, 1),
             matrices_of(weight.contiguous(), images, results, terms, 0,
                         row_step, column_step),
             matrices_of(x, images, terms, positions, terms * positions,
                         positions, 1),
             added ? &*added : nullptr);
    return result;
  }

  // small_from() is in the format if that is possible without a copy.
  Tensor small_from(const Tensor& large, const Tensor& weight,
                    const OptionalTensor& bias, at::MemoryFormat format) const {
    const Tensor direct = directly(true, large, weight, bias, format);
    if (direct.defined()) return direct;
    const std::int64_t terms = kernel_size() * group_channels();
    const auto shape = [&](std::int64_t i) { return axes[size_of(i)].small; };
    if (is_by_image(large)) {
      return product_by_image(large, weight, bias, filters, channels, 1);
    }
    const std::int64_t rows = images * small_size();
    const auto added = bias_of(bias, rows, filters, false);
    const Tensor result = at::empty(
        {images, shape(0), shape(1), shape(2), filters}, large.options());
    const Tensor x = padded(large), w = channels_last(weight);
    const Windows places = windows(x);
    const Gather gather{{places.positions.data(), 1},
                        {places.terms.data(), places.run}};
    multiply(matrices_of(result, groups, rows, group_filters(), group_filters(),
                         filters, 1),
             matrices_of(x, groups, rows, terms, group_channels(), channels, 1),
             matrices_of(w, groups, terms, group_filters(),
                         group_filters() * terms, 1, terms),
             added ? &*added : nullptr, is_pointwise() ? nullptr : &gather);
    return result.permute({0, 4, 1, 2, 3});
  }

  // A phase of an axis is the positions of the large tensor from `first` on
  // with the distance `stride`. The same positions of the kernel, kernel_first
  // to kernel_last, reach all of them: position i of these reaches, at count j,
  // position j + places[i] of the small tensor.
  struct Phase {
    std::int64_t first = 0, count = 0;
    std::int64_t kernel_first = 0, kernel_last = 0, kernel_step = 1;
    Indices places;
  };
  static std::vector<Phase> phases(const Axis& axis) {
    std::vector<Phase> all;
    for (std::int64_t first = 0; first < std::min(axis.stride, axis.large);
         ++first) {
      Phase phase;
      phase.first = first;
      phase.count = (axis.large - first - 1) / axis.stride + 1;
      for (std::int64_t k = 0; k < axis.kernel; ++k) {
        const std::int64_t at = first + axis.padding - k * axis.dilation;
        if (at % axis.stride != 0) continue;
        if (phase.places.empty()) {
          phase.kernel_first = k;
        } else {
          phase.kernel_step = k - phase.kernel_last;
        }
        phase.kernel_last = k;
        phase.places.push_back(at / axis.stride);
      }
      all.push_back(std::move(phase));
    }
    return all;
  }

  // large_from() is in the format if that is possible without a copy.
  Tensor large_from(const Tensor& small, const Tensor& weight,
                    const OptionalTensor& bias, at::MemoryFormat format) const {
    const Tensor direct = directly(false, small, weight, bias, format);
    if (direct.defined()) return direct;
    const auto shape = [&](std::int64_t i) { return axes[size_of(i)].large; };
    if (is_by_image(small)) {
      return product_by_image(small, weight, bias, channels, 1, channels);
    }
    std::array<std::vector<Phase>, kAxes> all;
    std::array<std::int64_t, kAxes> before{}, after{};
    for (int i = 0; i < kAxes; ++i) {
      all[i] = phases(axes[i]);
      for (const Phase& phase : all[i]) {
        for (const std::int64_t place : phase.places) {
          before[i] = std::max(before[i], -place);
          after[i] = std::max(after[i], place + phase.count - axes[i].small);
        }
      }
    }
    const Tensor x = channels_last(small, before, after);
    const Tensor result = at::empty(
        {images, shape(0), shape(1), shape(2), channels}, small.options());
    const Tensor w = with_axes(weight).reshape(
        {groups, group_filters(), group_channels(), axes[0].kernel,
         axes[1].kernel, axes[2].kernel});
    for (const Phase& depth : all[0]) {
      for (const Phase& height : all[1]) {
        for (const Phase& width : all[2]) {
          compute_phase({&depth, &height, &width}, x, before, w, bias, result);
        }
      }
    }
    return result.permute({0, 4, 1, 2, 3});
  }

  // compute_phase() computes the positions of one phase of each axis.
  void compute_phase(const std::array<const Phase*, kAxes>& phase,
                     const Tensor& x,
                     const std::array<std::int64_t, kAxes>& before,
                     const Tensor& weight, const OptionalTensor& bias,
                     const Tensor& result) const {
    std::array<Indices, kAxes> positions, terms;
    Tensor w = weight, out = result;
    std::int64_t rows = images, reached = 1;
    for (int i = 0; i < kAxes; ++i) {
      const Phase& one = *phase[i];
      positions[i] = range(one.count);
      for (const std::int64_t place : one.places) {
        terms[i].push_back(place + before[i]);
      }
      const auto kernel = static_cast<std::int64_t>(one.places.size());
      rows *= one.count;
      reached *= kernel;
      w = kernel == 0 ? w.narrow(3 + i, 0, 0)
                      : w.slice(3 + i, one.kernel_first, one.kernel_last + 1,
                                one.kernel_step);
      out = out.slice(1 + i, one.first, axes[i].large, axes[i].stride);
    }
    w = w.permute({0, 3, 4, 5, 1, 2}).contiguous();
    const bool is_all = out.sizes() == result.sizes();
    const Tensor dense = is_all ? result : at::empty(out.sizes(), x.options());
    const std::int64_t count = reached * group_filters();
    const std::vector<std::size_t> row_places = places_in(x, images, positions),
                                   term_places = places_in(x, 1, terms);
    const Gather gather{{row_places.data(), 1},
                        {term_places.data(), size_of(group_filters())}};
    const auto added = bias_of(bias, rows, channels, false);
    multiply(matrices_of(dense, groups, rows, group_channels(),
                         group_channels(), channels, 1),
             matrices_of(x, groups, rows, count, group_filters(), filters, 1),
             matrices_of(w, groups, count, group_channels(),
                         count * group_channels(), group_channels(), 1),
             added ? &*added : nullptr, is_pointwise() ? nullptr : &gather);
    if (!is_all) out.copy_(dense);
  }

  // weight_from() is a gradient of the weight, in its shape with all axes and
  // with the channels last. Its product has a gathered factor, which is the
  // left one, so that the result is written transposed.
  Tensor weight_from(const Tensor& large, const Tensor& small) const {
    if (is_direct()) {
      const Tensor x = dense(large), y = dense(small);
      const Tensor result = at::empty(
          {filters, 1, axes[1].kernel, axes[2].kernel, group_channels()},
          x.options());
      const bool supported = is_supported([&] {
        convolve_weight(direct(true, x, y), const_data(x), const_data(y),
                        const_cast<void*>(const_data(result)));
      });
      if (supported) return result.permute({0, 4, 1, 2, 3});
    }
    const std::int64_t terms = kernel_size() * group_channels();
    const std::int64_t positions = small_size();
    const std::int64_t rows = images * positions;
    const Tensor result = at::empty({filters, axes[0].kernel, axes[1].kernel,
                                     axes[2].kernel, group_channels()},
                                    large.options());
    const Tensor y = channels_last(small);
    const Matrices out = matrices_of(result, groups, terms, group_filters(),
                                     terms * group_filters(), 1, terms);
    const Matrices b = matrices_of(y, groups, rows, group_filters(),
                                   group_filters(), filters, 1);
    if (is_by_image(large)) {
      std::vector<std::size_t> row_places, term_places;
      for (std::int64_t c = 0; c < channels; ++c) {
        row_places.push_back(size_of(c * positions));
      }
      for (std::int64_t n = 0; n < images; ++n) {
        term_places.push_back(size_of(n * channels * positions));
      }
      const Gather gather{{row_places.data(), 1},
                          {term_places.data(), size_of(positions)}};
      multiply(out, matrices_of(large, 1, terms, rows, 0, 1, 1), b, nullptr,
               &gather);
    } else {
      const Tensor x = padded(large);
      const Windows places = windows(x);
      const Gather gather{{places.terms.data(), places.run},
                          {places.positions.data(), 1}};
      multiply(
          out,
          matrices_of(x, groups, terms, rows, group_channels(), 1, channels), b,
          nullptr, is_pointwise() ? nullptr : &gather);
    }
    return result.permute({0, 4, 1, 2, 3});
  }

  // sum_of() is the gradient of a bias: the sum over images and positions of a
  // tensor with the channels last.
  static Tensor sum_of(const Tensor& last) {
    const std::int64_t count = last.size(4), rows = last.numel() / count;
    const Tensor result = at::empty({count}, last.options());
    const Tensor one = at::ones({1}, last.options());
    multiply(matrices_of(result, 1, 1, count, 0, 0, 1),
             matrices_of(one, 1, 1, rows, 0, 0, 0),
             matrices_of(last, 1, rows, count, 0, count, 1));
    return result;
  }
};

// Call is the arguments of one of the two operators.
struct Call {
  const Tensor& input;
  const Tensor& weight;
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  std::int64_t groups;
};

// in_format() removes the added axes. The strides are PyTorch's, of dimensions
// of size 1 too.
Tensor in_format(const Tensor& x, std::int64_t dimensions,
                 at::MemoryFormat format) {
  Tensor result = x;
  while (result.dim() > dimensions) result = result.squeeze(2);
  const Tensor like =
      at::empty(result.sizes(), result.options().device(at::kMeta), format);
  const Tensor last = result.movedim(1, -1);
  if (format == at::MemoryFormat::Contiguous && !result.is_contiguous() &&
      last.is_contiguous()) {
    result = transposed(last.flatten(1, -2)).view(result.sizes());
  }
  return result.contiguous(format).as_strided(like.sizes(), like.strides());
}

// format_of() is the memory format of the results of PyTorch's own kernels and
// of its fake tensors.
at::MemoryFormat format_of(const Call& call, const OptionalTensor& bias,
                           at::OptionalSymIntArrayRef bias_sizes) {
  if (call.input.dim() == 3) return at::MemoryFormat::Contiguous;
  const auto symbolic = [](at::IntArrayRef values) {
    return c10::fromIntArrayRefSlow(values);
  };
  return at::native::_determine_backend_memory_format(
      call.input, call.weight,
      at::native::select_conv_backend(
          call.input, call.weight, bias, symbolic(call.stride),
          symbolic(call.padding), symbolic(call.dilation), call.transposed,
          symbolic(call.output_padding), call.groups, bias_sizes));
}

// convolution_of() is empty if PyTorch's own kernel must compute the operator,
// because that is faster, or because the arguments are wrong, unusual or empty.
std::optional<Convolution> convolution_of(const Call& call) {
  const Tensor &x = call.input, &w = call.weight;
  const at::ScalarType type = x.scalar_type();
  const std::int64_t d = x.dim(), axes = d - 2;
  if (!is_product_taken(type) || !is_plain(x, type) || !is_plain(w, type) ||
      axes < 1 || axes > kAxes || w.dim() != d || x.numel() == 0 ||
      w.numel() == 0 || call.groups < 1) {
    return std::nullopt;
  }
  // A list of one number, as padding="valid" makes, is for all axes.
  const auto has_axes = [&](at::IntArrayRef values, std::int64_t least) {
    return (values.size() == 1 || values.size() == size_of(axes)) &&
           std::all_of(values.begin(), values.end(),
                       [&](std::int64_t value) { return value >= least; });
  };
  const auto of_axis = [](at::IntArrayRef values, std::size_t axis) {
    return values[values.size() == 1 ? 0 : axis];
  };
  if (!has_axes(call.stride, 1) || !has_axes(call.padding, 0) ||
      !has_axes(call.dilation, 1) || !has_axes(call.output_padding, 0)) {
    return std::nullopt;
  }
  Convolution one{{}, x.size(0), 0, w.size(0), call.groups};
  one.channels = w.size(1) * call.groups;
  if (one.filters % call.groups != 0 ||
      x.size(1) != (call.transposed ? one.filters : one.channels)) {
    return std::nullopt;
  }
  std::int64_t large = one.channels, small = one.filters;  // elements
  for (std::int64_t i = 0; i < axes; ++i) {
    const auto n = size_of(i);
    Axis& axis = one.axes[size_of(kAxes - axes) + n];
    axis.kernel = w.size(2 + i);
    axis.stride = of_axis(call.stride, n);
    axis.padding = of_axis(call.padding, n);
    axis.dilation = of_axis(call.dilation, n);
    const std::int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
    if (call.transposed) {
      const std::int64_t extra = of_axis(call.output_padding, n);
      if (extra >= std::max(axis.stride, axis.dilation)) return std::nullopt;
      axis.small = x.size(2 + i);
      axis.large =
          (axis.small - 1) * axis.stride - 2 * axis.padding + reach + extra;
    } else {
      axis.large = x.size(2 + i);
      const std::int64_t last = axis.large + 2 * axis.padding - reach;
      if (last < 0) return std::nullopt;  // where the last window begins
      axis.small = last / axis.stride + 1;
    }
    if (axis.large < 1) return std::nullopt;
    large *= axis.large + 2 * axis.padding;
    small *= axis.small;
  }
  // Of an image, so that each step is possible.
  constexpr auto kMost = static_cast<std::int64_t>(Matrices::kMaxStep);
  if (large > kMost || small > kMost || w.numel() > kMost) return std::nullopt;
  return one;
}

// is_taken() returns whether swamp's kernels compute a convolution: under
// half_precision alone only if they are at least as fast as PyTorch's. On CPUs
// with a bfloat16 instruction oneDNN's are faster, except
// - pointwise ones of tensors with the channels first;
// - depthwise ones with the channels first, or backward, unless their kernel is
//   small and moves by 1;
// - dilated ones of groups: oneDNN's gradient of the weight can be wrong (in
//   PyTorch 2.13: 32 groups of 1 channel, 25 x 70, kernel 3, dilation 2).
bool is_taken(const Convolution& one, const Call& call, bool is_backward) {
  if (is_reproducible() || !has_bfloat16() ||
      call.input.scalar_type() != at::kBFloat16) {
    return true;
  }
  const bool is_last =
      call.input.suggest_memory_format() != at::MemoryFormat::Contiguous;
  if (one.groups == 1) return one.is_pointwise() && !is_last;
  bool is_dilated = false, is_small = true;
  for (const Axis& axis : one.axes) {
    is_dilated = is_dilated || axis.dilation > 1;
    is_small = is_small && axis.kernel <= 3 && axis.stride == 1;
  }
  const bool is_depthwise =
      one.group_channels() == 1 && one.group_filters() == 1;
  return is_dilated ||
         (is_depthwise && (!is_last || (is_backward && !is_small)));
}

// With few filters in each group most lanes of a panel are unused. PyTorch's
// float32 convolution is then many times as fast; its result is rounded once.
bool is_by_float(const Convolution& one) {
  constexpr std::int64_t kFewFilters = 16;
  return one.groups > 1 && one.group_filters() < kFewFilters &&
         !one.is_direct() && !is_reproducible();
}

Tensor to_float(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->to(at::kFloat)
                                                 : Tensor();
}

// Kernel of aten::_convolution, which aten::convolution and traced programs
// call. Its last arguments are for other devices.
Tensor convolution(const Tensor& input, const Tensor& weight,
                   const OptionalTensor& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef output_padding,
                   std::int64_t groups, bool benchmark, bool deterministic,
                   bool cudnn_enabled, bool allow_tf32) {
  const Call call{input,    weight,     stride,         padding,
                  dilation, transposed, output_padding, groups};
  const auto one = convolution_of(call);
  const bool has_bias = bias.has_value() && bias->defined();
  const std::int64_t results =
      one ? (transposed ? one->channels : one->filters) : 0;
  if (!one || !is_taken(*one, call, false) ||
      (has_bias && (!is_plain(*bias, input.scalar_type()) ||
                    bias->sizes() != at::IntArrayRef({results})))) {
    return at::compositeexplicitautograd::_convolution(
        input, weight, bias, stride, padding, dilation, transposed,
        output_padding, groups, benchmark, deterministic, cudnn_enabled,
        allow_tf32);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::MemoryFormat format = format_of(call, bias, std::nullopt);
  if (is_by_float(*one)) {
    return at::convolution(to_float(input), to_float(weight), to_float(bias),
                           stride, padding, dilation, transposed,
                           output_padding, groups)
        .to(input.scalar_type())
        .contiguous(format);
  }
  return in_format(transposed ? one->large_from(input, weight, bias, format)
                              : one->small_from(input, weight, bias, format),
                   input.dim(), format);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad_output, const Tensor& input, const Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, std::int64_t groups,
    std::array<bool, 3> output_mask) {
  const Call call{input,    weight,     stride,         padding,
                  dilation, transposed, output_padding, groups};
  const auto one = convolution_of(call);
  const auto fits = [&] {
    if (!is_plain(grad_output, input.scalar_type()) ||
        grad_output.dim() != input.dim()) {
      return false;
    }
    const at::IntArrayRef sizes = with_axes(grad_output).sizes();
    for (std::size_t i = 0; i < kAxes; ++i) {
      const Axis& axis = one->axes[i];
      if (sizes[i + 2] != (transposed ? axis.large : axis.small)) return false;
    }
    return sizes[0] == one->images &&
           sizes[1] == (transposed ? one->channels : one->filters);
  };
  if (!one || !fits() || !is_taken(*one, call, true)) {
    return at::compositeexplicitautograd::convolution_backward(
        grad_output, input, weight, bias_sizes, stride, padding, dilation,
        transposed, output_padding, groups, output_mask);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::optional<c10::SymDimVector> sizes;
  if (bias_sizes.has_value()) {
    sizes.emplace(bias_sizes->begin(), bias_sizes->end());
  }
  const at::MemoryFormat format =
      format_of(call, std::nullopt,
                sizes ? at::OptionalSymIntArrayRef(*sizes)
                      : at::OptionalSymIntArrayRef());
  std::tuple<Tensor, Tensor, Tensor> grads;
  if (is_by_float(*one)) {
    grads = at::convolution_backward(to_float(grad_output), to_float(input),
                                     to_float(weight), bias_sizes, stride,
                                     padding, dilation, transposed,
                                     output_padding, groups, output_mask);
    const auto rounded = [&](Tensor& grad, at::MemoryFormat how) {
      if (grad.defined()) grad = grad.to(input.scalar_type()).contiguous(how);
    };
    rounded(std::get<0>(grads), format);
    rounded(std::get<1>(grads), format);
    rounded(std::get<2>(grads), at::MemoryFormat::Contiguous);
    return grads;
  }
  const Tensor grad = grad_output.contiguous(format);
  if (output_mask[0]) {
    std::get<0>(grads) = in_format(
        transposed ? one->small_from(grad, weight, std::nullopt, format)
                   : one->large_from(grad, weight, std::nullopt, format),
        input.dim(), format);
  }
  if (!output_mask[1] && !output_mask[2]) return grads;
  // One copy for both.
  const Tensor last =
      output_mask[2] || !one->is_direct() ? channels_last(grad) : Tensor();
  if (output_mask[1]) {
    const Tensor y = one->is_direct() ? grad : last.permute({0, 4, 1, 2, 3});
    std::get<1>(grads) = in_format(
        transposed ? one->weight_from(y, input) : one->weight_from(input, y),
        input.dim(), format);
  }
  if (output_mask[2]) std::get<2>(grads) = Convolution::sum_of(last);
  return grads;
}

}  // namespace

void register_convolution(torch::Library& library) {
  library.impl("_convolution", &convolution);
  library.impl("convolution_backward", &convolution_backward);
}

}  // namespace swamp::aten
