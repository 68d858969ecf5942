// PyTorch's operators _convolution and convolution_backward, of 1 to 3
// dimensions. A convolution computes the small tensor of convolution.h, a
// transposed convolution the large one, and the gradients are the other two.
#include "master/aten/convolution.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

using at::Tensor;

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
  return contiguous(result, format).as_strided(like.sizes(), like.strides());
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
  if (!is_switched(type) || !has_product() || !is_plain(x, type) ||
      !is_plain(w, type) || axes < 1 || axes > kAxes || w.dim() != d ||
      x.numel() == 0 || w.numel() == 0 || call.groups < 1) {
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
// with an instruction for the dtype oneDNN's are faster, except
// - pointwise ones of tensors with the channels first, unless it has tiles;
// - depthwise ones with the channels first, or backward, unless their kernel is
//   small and moves by 1;
// - dilated ones of groups: oneDNN's gradient of the weight can be wrong (in
//   PyTorch 2.13: 32 groups of 1 channel, 25 x 70, kernel 3, dilation 2).
bool is_taken(const Convolution& one, const Call& call, bool is_backward) {
  const at::ScalarType type = call.input.scalar_type();
  if (!prefers_onednn(type)) return true;
  const bool is_last =
      call.input.suggest_memory_format() != at::MemoryFormat::Contiguous;
  if (one.groups == 1) {
    return one.is_pointwise() && !is_last && !prefers_tiles(type);
  }
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

// is_by_tiles() returns whether PyTorch's products of matrices compute a
// pointwise convolution of images with the channels first, on a CPU that
// multiplies tiles: oneDNN's convolution copies the images to and from a format
// of blocks, which takes up to nine times as long.
bool is_by_tiles(const Convolution& one, const Call& call) {
  const auto is_first = [](const Tensor& x) {
    return x.is_contiguous() &&
           x.suggest_memory_format() == at::MemoryFormat::Contiguous;
  };
  return prefers_tiles(call.input.scalar_type()) && one.groups == 1 &&
         one.is_pointwise() && !call.transposed && is_first(call.input) &&
         is_first(call.weight);
}

// has_large_images() returns whether products of single images are worth
// reading the weight for each of them.
bool has_large_images(const Call& call) {
  constexpr std::int64_t kLeastPositions = 128, kFewWeights = 1 << 18;
  const std::int64_t images = call.input.size(0);
  return images * call.weight.numel() <= kFewWeights ||
         call.input.numel() / (images * call.input.size(1)) >= kLeastPositions;
}

// weight_times() is a matrix times each image of x.
Tensor weight_times(const Tensor& weight, const Tensor& x,
                    const OptionalTensor& bias) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[1] = weight.size(0);
  const Tensor images = x.flatten(2),
               all = weight.expand({x.size(0), weight.size(0), x.size(1)});
  const bool has_bias = bias.has_value() && bias->defined();
  return (has_bias ? at::baddbmm(bias->view({1, -1, 1}), all, images)
                   : at::bmm(all, images))
      .view(sizes);
}

// channel_rows() is a row of all images for each channel.
Tensor channel_rows(const Tensor& x) {
  return x.flatten(2).transpose(0, 1).flatten(1);
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
  const bool is_bias_plain =
      !has_bias || (is_plain(*bias, input.scalar_type()) &&
                    bias->sizes() == at::IntArrayRef({results}));
  if (one && is_bias_plain && is_by_tiles(*one, call) &&
      has_large_images(call)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return weight_times(weight.flatten(1), input, bias);
  }
  if (!one || !is_bias_plain || !is_taken(*one, call, false)) {
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
  return in_format(transposed ? large_from(*one, input, weight, bias, format)
                              : small_from(*one, input, weight, bias, format),
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
  const auto stock = [&](std::array<bool, 3> wanted) {
    return at::compositeexplicitautograd::convolution_backward(
        grad_output, input, weight, bias_sizes, stride, padding, dilation,
        transposed, output_padding, groups, wanted);
  };
  if (one && fits() && is_by_tiles(*one, call)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const bool by_image = has_large_images(call);
    std::tuple<Tensor, Tensor, Tensor> grads;
    if (output_mask[2] || (output_mask[0] && !by_image)) {
      grads = stock({output_mask[0] && !by_image, false, output_mask[2]});
    }
    const Tensor grad = grad_output.contiguous();
    if (output_mask[0] && by_image) {
      std::get<0>(grads) =
          weight_times(weight.flatten(1).t().contiguous(), grad, std::nullopt);
    }
    if (output_mask[1]) {
      std::get<1>(grads) = at::mm(channel_rows(grad), channel_rows(input).t())
                               .view(weight.sizes());
    }
    return grads;
  }
  if (!one || !fits() || !is_taken(*one, call, true)) return stock(output_mask);
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
  const Tensor grad = contiguous(grad_output, format);
  if (output_mask[0]) {
    std::get<0>(grads) = in_format(
        transposed ? small_from(*one, grad, weight, std::nullopt, format)
                   : large_from(*one, grad, weight, std::nullopt, format),
        input.dim(), format);
  }
  if (!output_mask[1] && !output_mask[2]) return grads;
  // One copy for both.
  const Tensor last = output_mask[2] ? channels_last(grad) : Tensor();
  if (output_mask[1]) {
    const Tensor y = output_mask[2] && !one->is_direct()
                         ? last.permute({0, 4, 1, 2, 3})
                         : grad;
    std::get<1>(grads) = in_format(
        transposed ? weight_from(*one, y, input) : weight_from(*one, input, y),
        input.dim(), format);
  }
  if (output_mask[2]) std::get<2>(grads) = bias_from(last);
  return grads;
}

}  // namespace

void register_convolution(torch::Library& library) {
  library.impl("_convolution", &convolution);
  library.impl("convolution_backward", &convolution_backward);
}

}  // namespace swamp::aten
