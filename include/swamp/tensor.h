/// @file
/// Tensors and lists of them, as the C++ API takes them.
#ifndef SWAMP_TENSOR_H_
#define SWAMP_TENSOR_H_

#include <array>
#include <cstddef>
#include <vector>

#include "swamp/c_api.h"

namespace swamp {

/// ScalarType is the element type of a tensor. The C++ and the C API share the
/// type, so that a list passes between them without a copy.
using ScalarType = swamp_dtype;
inline constexpr ScalarType kFloat16 = SWAMP_FLOAT16;    ///< IEEE binary16
inline constexpr ScalarType kBFloat16 = SWAMP_BFLOAT16;  ///< ATen BFloat16
inline constexpr ScalarType kFloat32 = SWAMP_FLOAT32;    ///< IEEE binary32
inline constexpr ScalarType kFloat64 = SWAMP_FLOAT64;    ///< IEEE binary64
/// ATen Float8_e4m3fn
inline constexpr ScalarType kFloat8E4M3FN = SWAMP_FLOAT8_E4M3FN;
/// ATen Float8_e5m2
inline constexpr ScalarType kFloat8E5M2 = SWAMP_FLOAT8_E5M2;
// Only conversions and products of codes take the following.
/// ATen Float8_e4m3fnuz
inline constexpr ScalarType kFloat8E4M3FNUZ = SWAMP_FLOAT8_E4M3FNUZ;
/// ATen Float8_e5m2fnuz
inline constexpr ScalarType kFloat8E5M2FNUZ = SWAMP_FLOAT8_E5M2FNUZ;
/// OCP FP6 E3M2, one element a byte
inline constexpr ScalarType kFloat6E3M2FN = SWAMP_FLOAT6_E3M2FN;
/// OCP FP6 E2M3, one element a byte
inline constexpr ScalarType kFloat6E2M3FN = SWAMP_FLOAT6_E2M3FN;
/// ATen Float4_e2m1fn_x2: two elements a byte, the first in the low half
inline constexpr ScalarType kFloat4E2M1FNX2 = SWAMP_FLOAT4_E2M1FN_X2;
/// Huawei's HiFloat8
inline constexpr ScalarType kHiFloat8 = SWAMP_HIFLOAT8;
/// ATen Float8_e8m0fnu; not for elements of blocks, but for their scales
inline constexpr ScalarType kFloat8E8M0FNU = SWAMP_FLOAT8_E8M0FNU;
/// OCP MXINT8: two's complement, in 1/64
inline constexpr ScalarType kMxInt8 = SWAMP_MXINT8;

/// Tensor is {data, count, dtype}: one contiguous array that the caller owns.
using Tensor = swamp_tensor;

/// TensorList is a view of an array of tensors, as ATen's. It owns nothing and
/// lives as long as what it was made from.
class TensorList {
 public:
  /// An empty list.
  constexpr TensorList() noexcept = default;
  /// `count` is in tensors; if it is 0, `data` may be null.
  constexpr TensorList(const Tensor* data, std::size_t count) noexcept
      : data_(data), count_(count) {}
  /// All of a vector; it must not grow while the list is in use.
  TensorList(const std::vector<Tensor>& tensors) noexcept
      : data_(tensors.data()), count_(tensors.size()) {}
  /// One tensor; a temporary lives until the end of the call.
  constexpr TensorList(const Tensor& tensor) noexcept
      : data_(&tensor), count_(1) {}
  /// All of an array.
  template <std::size_t kCount>
  constexpr TensorList(const std::array<Tensor, kCount>& tensors) noexcept
      : data_(tensors.data()), count_(kCount) {}
  /// All of an array.
  template <std::size_t kCount>
  constexpr TensorList(const Tensor (&tensors)[kCount]) noexcept
      : data_(tensors), count_(kCount) {}

  /// The first tensor.
  constexpr const Tensor* data() const noexcept { return data_; }
  /// Tensors in the list.
  constexpr std::size_t count() const noexcept { return count_; }
  /// For range-for.
  constexpr const Tensor* begin() const noexcept { return data_; }
  /// For range-for.
  constexpr const Tensor* end() const noexcept { return data_ + count_; }

 private:
  const Tensor* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace swamp

#endif  // SWAMP_TENSOR_H_
