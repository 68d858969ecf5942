// Convolutions as products. A convolution relates a large tensor, over which a
// window moves, a small one, with an element for each position of the window,
// and a weight. Each of the three is a matrix product of the other two, one of
// them gathered from windows (im2col):
//   small  = windows of the large one * weight
//   large  = windows of the small one * weight
//   weight = transposed windows of the large one * small
// In the factors the channels come last, and padding is zeros, so the bits do
// not depend on the memory format: the terms of a window are in the order of
// the kernel's positions, at each of them the channels; those of a weight in
// the order of images and positions. Groups of few channels are computed
// directly (swamp/convolution.h), with the same bits, from and to the tensors
// as they are.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/convolution.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/convolution.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using Indices = std::vector<std::int64_t>;

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

struct Products : Convolution {
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

  // An image is then a matrix of channels and positions.
  bool is_by_image(const Tensor& x) const {
    return is_pointwise() && groups == 1 && x.is_contiguous();
  }

  // is_gathered() returns whether a product with the windows of x takes their
  // places. Those of a pointwise convolution are at steps, but gathered float32
  // is read where it lies instead of packed.
  bool is_gathered(const Tensor& x) const {
    return !is_pointwise() || x.scalar_type() == at::kFloat;
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
               : contiguous(x);
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
               values_of<void>(added), const_cast<void*>(const_data(result)));
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
             added ? &*added : nullptr, is_gathered(x) ? &gather : nullptr);
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
    w = contiguous(w.permute({0, 3, 4, 5, 1, 2}));
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
             added ? &*added : nullptr, is_gathered(x) ? &gather : nullptr);
    if (!is_all) out.copy_(dense);
  }

  // places_of() is `count` places that are `step` apart.
  static std::vector<std::size_t> places_of(std::int64_t count,
                                            std::int64_t step) {
    std::vector<std::size_t> places;
    for (std::int64_t i = 0; i < count; ++i)
      places.push_back(size_of(i * step));
    return places;
  }
  // Images are where those of a tensor with the channels first begin.
  struct Images {
    std::vector<std::size_t> begins;
    std::size_t positions;

    Runs runs() const { return {begins.data(), positions}; }
  };
  Images images_of(std::int64_t step, std::int64_t positions) const {
    return {places_of(images, step), size_of(positions)};
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
    // The positions of an image are neighbours with the channels first, and
    // the products of two are added at once.
    const auto has_runs = [&](const Tensor& x) {
      return x.is_contiguous() && positions % 2 == 0;
    };
    const Images of_small = images_of(positions * filters, positions),
                 of_large = images_of(positions * channels, positions);
    if (is_by_image(large) && has_runs(large) && has_runs(small) &&
        channels < filters) {
      // The factor that is packed has fewer elements.
      const std::vector<std::size_t> places = places_of(filters, positions);
      const Gather gather{{places.data(), 1}, of_small.runs(), of_large.runs()};
      multiply(matrices_of(result, 1, filters, terms, 0, terms, 1),
               matrices_of(small, 1, filters, rows, 0, positions, 1),
               matrices_of(large, 1, rows, channels, 0, 1, positions), nullptr,
               &gather);
      return result.permute({0, 4, 1, 2, 3});
    }
    const bool by_run = has_runs(small);
    const Tensor y = by_run ? small : channels_last(small);
    const Matrices out = matrices_of(result, groups, terms, group_filters(),
                                     terms * group_filters(), 1, terms);
    const Matrices b =
        by_run ? matrices_of(y, groups, rows, group_filters(),
                             group_filters() * positions, 1, positions)
               : matrices_of(y, groups, rows, group_filters(), group_filters(),
                             filters, 1);
    const Runs b_rows = by_run ? of_small.runs() : Runs{};
    if (is_by_image(large)) {
      const std::vector<std::size_t> places = places_of(channels, positions);
      const Gather gather{{places.data(), 1}, of_large.runs(), b_rows};
      multiply(out, matrices_of(large, 1, terms, rows, 0, 1, 1), b, nullptr,
               &gather);
    } else {
      const Tensor x = padded(large);
      const Windows places = windows(x);
      const Gather gather{{places.terms.data(), places.run},
                          {places.positions.data(), 1},
                          b_rows};
      // Of many channels and filters packing takes less than reading again.
      constexpr std::int64_t kFew = 128;
      const bool few = std::min(channels, filters) <= kFew;
      multiply(
          out,
          matrices_of(x, groups, terms, rows, group_channels(), 1, channels), b,
          nullptr,
          by_run || !is_pointwise() || (few && is_gathered(x)) ? &gather
                                                               : nullptr);
    }
    return result.permute({0, 4, 1, 2, 3});
  }
};

}  // namespace

Tensor channels_last(const Tensor& x,
                     const std::array<std::int64_t, kAxes>& before,
                     const std::array<std::int64_t, kAxes>& after) {
  Tensor last = with_axes(x).permute({0, 2, 3, 4, 1});
  Indices sizes = last.sizes().vec();
  for (int i = 0; i < kAxes; ++i) sizes[size_of(i) + 1] += before[i] + after[i];
  // Between zeros PyTorch copies 16 bits more slowly than swamp and then
  // PyTorch once more, but not 32.
  const bool is_padded = sizes != last.sizes();
  if (!is_padded) return contiguous(last);
  if (x.is_contiguous() && x.element_size() == 2) last = contiguous(last);
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

Tensor small_from(const Convolution& shapes, const Tensor& large,
                  const Tensor& weight, const OptionalTensor& bias,
                  at::MemoryFormat format) {
  return Products{shapes}.small_from(large, weight, bias, format);
}

Tensor large_from(const Convolution& shapes, const Tensor& small,
                  const Tensor& weight, const OptionalTensor& bias,
                  at::MemoryFormat format) {
  return Products{shapes}.large_from(small, weight, bias, format);
}

Tensor weight_from(const Convolution& shapes, const Tensor& large,
                   const Tensor& small) {
  return Products{shapes}.weight_from(large, small);
}

Tensor bias_from(const Tensor& last) {
  const std::int64_t count = last.size(4), rows = last.numel() / count;
  const Tensor result = at::empty({count}, last.options());
  const Tensor one = at::ones({1}, last.options());
  multiply(matrices_of(result, 1, 1, count, 0, 0, 1),
           matrices_of(one, 1, 1, rows, 0, 0, 0),
           matrices_of(last, 1, rows, count, 0, count, 1));
  return result;
}

}  // namespace swamp::aten
