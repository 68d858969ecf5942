// A convolution as matrix products of tensors, from which the operators of
// PyTorch are made.
#ifndef SWAMP_MASTER_ATEN_CONVOLUTION_H_
#define SWAMP_MASTER_ATEN_CONVOLUTION_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "swamp/aten.h"

namespace swamp::aten {

constexpr int kAxes = 3;  // depth, height, width; those absent have size 1

inline std::size_t size_of(std::int64_t size) {
  return static_cast<std::size_t>(size);
}

// Axis is one dimension of a convolution. Position i of the kernel at position
// j of the small tensor is at j * stride + i * dilation - padding of the large.
struct Axis {
  std::int64_t large = 1, small = 1, kernel = 1;
  std::int64_t stride = 1, padding = 0, dilation = 1;
};

// Convolution is the shapes. The tensors are PyTorch's: large [images,
// channels, ...], small [images, filters, ...], and weight [filters, channels /
// groups, ...].
struct Convolution {
  std::array<Axis, kAxes> axes;
  std::int64_t images, channels, filters, groups;

  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t group_filters() const { return filters / groups; }

  // A pointwise convolution is a product of the tensors as they are. With an
  // output padding the large tensor has positions that no window reads.
  bool is_pointwise() const {
    return std::all_of(axes.begin(), axes.end(), [](const Axis& axis) {
      return axis.kernel == 1 && axis.stride == 1 && axis.padding == 0 &&
             axis.large == axis.small;
    });
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
};

// with_axes() returns [images, channels, ...] with all three axes.
inline at::Tensor with_axes(const at::Tensor& x) {
  at::Tensor all = x;
  while (all.dim() < 2 + kAxes) all = all.unsqueeze(2);
  return all;
}

// channels_last() returns [images, depth, height, width, channels], dense, with
// `before` and `after` zeros around the positions of each axis.
at::Tensor channels_last(const at::Tensor& x,
                         const std::array<std::int64_t, kAxes>& before = {},
                         const std::array<std::int64_t, kAxes>& after = {});

// small_from() and large_from() return the small and the large tensor, in the
// format if that is possible without a copy.
at::Tensor small_from(const Convolution& shapes, const at::Tensor& large,
                      const at::Tensor& weight, const OptionalTensor& bias,
                      at::MemoryFormat format);
at::Tensor large_from(const Convolution& shapes, const at::Tensor& small,
                      const at::Tensor& weight, const OptionalTensor& bias,
                      at::MemoryFormat format);

// weight_from() returns a gradient of the weight, in its shape with all axes
// and with the channels last.
at::Tensor weight_from(const Convolution& shapes, const at::Tensor& large,
                       const at::Tensor& small);

// bias_from() returns the gradient of a bias: the sum over images and positions
// of a tensor with the channels last.
at::Tensor bias_from(const at::Tensor& last);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_CONVOLUTION_H_
