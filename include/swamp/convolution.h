/// @file
/// Direct convolutions of float32, bfloat16 and float16 for groups of few
/// filters, such as depthwise convolutions, with float32 sums and one rounding
/// at the end. The bits are those of the matrix product of windows and weight
/// (swamp/product.h), on every machine. A convolution, its gradient of the
/// input and a transposed convolution are one function with other axes.
#ifndef SWAMP_CONVOLUTION_H_
#define SWAMP_CONVOLUTION_H_

#include <cstddef>

#include "swamp/export.h"
#include "swamp/machine.h"
#include "swamp/tensor.h"

namespace swamp {

/// ConvolutionDimension is the height or the width of a convolution. Position k
/// of the kernel at position o of the result is at position
/// (o * in_step + k * kernel_step + offset) / divisor of the input, if that is
/// a whole number; otherwise it is not a term. Beyond the input are zeros.
///
/// Of a convolution: {in, out, kernel, stride, dilation, -padding, 1}. Of its
/// gradient of the input, and of a transposed convolution:
/// {in, out, kernel, 1, -dilation, padding, stride}. in_step or divisor is 1.
struct ConvolutionDimension {
  std::size_t in = 1;      ///< size of the input
  std::size_t out = 1;     ///< size of the result
  std::size_t kernel = 1;  ///< size of the kernel
  long in_step = 1;        ///< see above
  long kernel_step = 1;    ///< see above
  long offset = 0;         ///< see above
  long divisor = 1;        ///< see above
};

/// The shapes of a convolution. x is [images, channels, height, width], the
/// result [images, filters, height, width], each dense in that order or, if
/// channels are last, [images, height, width, channels].
struct Convolution {
  std::size_t images = 0;    ///< number of images
  std::size_t channels = 0;  ///< of the input; a multiple of groups
  std::size_t filters = 0;   ///< channels of the result; a multiple of groups
  std::size_t groups = 1;    ///< of channels and filters
  ConvolutionDimension height;     ///< rows
  ConvolutionDimension width;      ///< columns
  ScalarType dtype = kFloat32;     ///< float16, bfloat16 or float32
  bool x_channels_last = false;    ///< memory format of x
  bool out_channels_last = false;  ///< of the result, or of its gradient
};

/// convolve sets out to the convolution of x. The sum of a result begins with 0
/// and has its terms by row and column of the kernel, then by channel of the
/// group, in the order of swamp/product.h.
///
/// A null machine is the default machine. Any thread may call. Everything is
/// checked before the first write; Error is thrown for bad arguments, and with
/// SWAMP_UNSUPPORTED if the machine's LDM is too small, a row is too long for
/// a CPU's caches, or a size or step is more than 2^28. The product has the
/// same bits then.
///
/// @param of the shapes
/// @param x the input
/// @param weight [filters, height, width, channels / groups], dense
/// @param bias [filters], or null
/// @param[out] out the result
/// @param machine where to run; null: the default machine
SWAMP_API void convolve(const Convolution& of, const void* x,
                        const void* weight, const void* bias, void* out,
                        Machine* machine = nullptr);

/// convolve_weight computes the gradient of the weight of a convolution, whose
/// divisors are 1. The terms of a sum are the images and positions. In LDM an
/// image of 16 filters must fit, because a unit is an image. Errors are those
/// of convolve().
///
/// @param of the shapes
/// @param x the input
/// @param gradient of the result
/// @param[out] out [filters, height, width, channels / groups]
/// @param machine where to run; null: the default machine
SWAMP_API void convolve_weight(const Convolution& of, const void* x,
                               const void* gradient, void* out,
                               Machine* machine = nullptr);

/// transpose copies matrices to their transposes, as from one memory format of
/// images to the other. Errors are those of convolve().
///
/// @param batch number of matrices, which are dense one after another
/// @param rows of each, such as the channels of an image
/// @param columns of each, such as its positions
/// @param dtype float16, bfloat16 or float32; a nan loses its payload
/// @param x [batch, rows, columns]
/// @param[out] out [batch, columns, rows]
/// @param machine where to run; null: the default machine
SWAMP_API void transpose(std::size_t batch, std::size_t rows,
                         std::size_t columns, ScalarType dtype, const void* x,
                         void* out, Machine* machine = nullptr);

}  // namespace swamp

#endif  // SWAMP_CONVOLUTION_H_
