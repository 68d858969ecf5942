/// @file
/// BatchNorm and GroupNorm: normalization of channels, forward and backward,
/// and sums and extremes along one dimension. Sums are double, in an order that
/// depends on the shape alone; statistics are float32. The results have the
/// same bits on every machine.
///
/// Common to all functions: a Machine of null is the default machine. Data must
/// be aligned to its element. Arrays must not overlap, except as stated.
/// Everything is checked before the first write; Error is thrown for bad
/// arguments. Any thread may call, also several at once on one machine.
#ifndef SWAMP_CHANNEL_NORM_H_
#define SWAMP_CHANNEL_NORM_H_

#include <cstddef>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/rows.h"
#include "swamp/tensor.h"

namespace swamp {

/// SumShape is the shape of an array whose middle dimension is added up.
struct SumShape {
  std::size_t outer = 1;  ///< elements of the dimensions before
  std::size_t terms = 0;  ///< elements of each sum
  std::size_t inner = 1;  ///< elements of the dimensions after
};

/// sum adds up one dimension of an array, of its product with another, or of
/// losses, in double or, if `narrow`, also in float32. Of no terms the sum is 0.
///
/// @param x float16, bfloat16, float32 or float64 of outer * terms * inner
///   elements, [outer, terms, inner]
/// @param shape sizes
/// @param[out] sums [outer, inner]
/// @param machine where to run; null: the default machine
/// @param factor the data of an array like x, by whose elements the terms are
///   multiplied, in double, unless there is a limit; may be x.data; needs an
///   `inner` of 1; null: 1
/// @param limit null, or the address of a number, which needs a factor: then
///   the terms are the losses m * (d - m / 2), where d is |x - factor| and m is
///   min(d, *limit); the number is not checked, and if it is infinity, the loss
///   of an infinite difference is nan
/// @param narrow whether terms, and sums of blocks of at most 8192 of them (64
///   chains of at most 128), are float32; needs float16 or bfloat16, an `inner`
///   of 1, and a limit if there is a factor
SWAMP_API void sum(const Tensor& x, const SumShape& shape, double* sums,
                   Machine* machine = nullptr, const void* factor = nullptr,
                   const float* limit = nullptr, bool narrow = false);

/// row_extremes finds the largest or smallest element of each row, nan if an
/// element is; 0 is larger than -0. Without columns the largest is -inf, the
/// smallest inf.
///
/// @param x float16 or bfloat16
/// @param is_smallest which of them
/// @param[out] extremes x.rows numbers
/// @param machine where to run; null: the default machine
SWAMP_API void row_extremes(const Matrix& x, bool is_smallest, double* extremes,
                            Machine* machine = nullptr);

/// ChannelShape divides the rows of a matrix, which are the positions of one
/// channel of one image: row = image * channels + channel.
struct ChannelShape {
  std::size_t channels = 0;  ///< a divisor of the rows
  /// 0: a channel of all images has one mean and variance (BatchNorm). Else
  /// channels / groups consecutive channels of one image have (GroupNorm).
  std::size_t groups = 0;
  /// Whether the channels of a position are neighbours in memory: element
  /// (row, column) of a matrix is then at (image * columns + column) * channels
  /// + channel. `groups` must be 0. If LDM is too small for the positions of a
  /// channel, that is an Error (SWAMP_UNSUPPORTED). The results have the same
  /// bits.
  bool channels_last = false;

  /// statistics() returns the number of means: the channels, or images *
  /// groups, image by image.
  constexpr std::size_t statistics(std::size_t rows) const noexcept {
    return groups == 0     ? channels
           : channels == 0 ? 0
                           : rows / channels * groups;
  }
};

/// channel_statistics computes the means and the variances (sums of squares
/// divided by the number of elements) of channels or groups.
///
/// @param x float16, bfloat16 or float32
/// @param shape channels and groups
/// @param eps added to a variance
/// @param[out] mean shape.statistics() values
/// @param[out] variance as many; null: not wanted
/// @param[out] rstd as many: 1 / sqrt(variance + eps)
/// @param machine where to run; null: the default machine
SWAMP_API void channel_statistics(const Matrix& x, const ChannelShape& shape,
                                  double eps, float* mean, float* variance,
                                  float* rstd, Machine* machine = nullptr);

/// channel_norm sets y = (x - mean) * (rstd * weight) + bias, each operation in
/// float32.
///
/// @param x float16, bfloat16 or float32
/// @param shape channels and groups
/// @param mean shape.statistics() values
/// @param rstd as many
/// @param weight one value for each channel; null: 1
/// @param bias one value for each channel; null: 0
/// @param y as x; may be x
/// @param machine where to run; null: the default machine
SWAMP_API void channel_norm(const Matrix& x, const ChannelShape& shape,
                            const float* mean, const float* rstd,
                            const float* weight, const float* bias,
                            const Matrix& y, Machine* machine = nullptr);

/// channel_norm_backward computes the gradients of channel_norm().
///
/// @param gradient of y, as x
/// @param x as in the forward call
/// @param shape channels and groups
/// @param mean as in the forward call
/// @param rstd as in the forward call
/// @param weight one value for each channel; null: 1
/// @param is_fixed whether mean and rstd do not depend on x (running
///   statistics)
/// @param dx as x, may be gradient; with data null it is not computed
/// @param[out] dweight one value for each channel; null: not wanted
/// @param[out] dbias one value for each channel; null: not wanted
/// @param machine where to run; null: the default machine
SWAMP_API void channel_norm_backward(const Matrix& gradient, const Matrix& x,
                                     const ChannelShape& shape,
                                     const float* mean, const float* rstd,
                                     const float* weight, bool is_fixed,
                                     const Matrix& dx, float* dweight,
                                     float* dbias, Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_CHANNEL_NORM_H_
