// How the operators read an at::Tensor.
#ifndef SWAMP_MASTER_ATEN_TENSOR_H_
#define SWAMP_MASTER_ATEN_TENSOR_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "swamp/tensor.h"

namespace swamp::aten {

// mutable_data() gives a lazily copied tensor (torch._lazy_clone) its own
// memory first, so call it before const_data() of a tensor that may share it.
inline void* mutable_data(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->mutable_data();
}

template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(mutable_data(tensor));
}

inline const void* const_data(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->data();
}

// count_write() does what PyTorch's own in-place operators do: a backward pass
// that still needs the old values then raises an error.
inline void count_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

// load() and store() work at any address: a tensor's data need not be aligned
// to its elements.
template <class T>
T load(const void* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

// is_dense() returns whether a strided tensor has no holes and no two elements
// at one address.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

// The memory of a tensor is spread: a long list is limited by cache misses.
inline constexpr std::size_t kPrefetchAhead = 12;

// prefetch() prefetches a tensor's own memory.
inline void prefetch(const at::Tensor& tensor) {
  const auto* at =
      reinterpret_cast<const std::byte*>(tensor.unsafeGetTensorImpl());
  for (std::size_t b = 0; b < sizeof(at::TensorImpl); b += 64) {
    __builtin_prefetch(at + b);
  }
}

// prefetch_storage() needs the tensor's own memory.
inline void prefetch_storage(const at::Tensor& tensor) {
  const auto* at = reinterpret_cast<const std::byte*>(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
}

// has_order_of() returns whether element i of the tensor's memory is element i
// of the memory of `like`.
inline bool has_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  return is_dense(tensor) && (tensor.strides() == like.strides() ||
                              (tensor.is_contiguous() && like.is_contiguous()));
}

// scalar_type() returns nothing for a dtype that the operators do not accept.
inline std::optional<ScalarType> scalar_type(at::ScalarType type) noexcept {
  switch (type) {
    case at::ScalarType::Half:
      return kFloat16;
    case at::ScalarType::BFloat16:
      return kBFloat16;
    case at::ScalarType::Float:
      return kFloat32;
    case at::ScalarType::Double:
      return kFloat64;
    default:
      return std::nullopt;
  }
}

// gradient_type() is scalar_type() for swamp's own operators on gradients,
// which also take float8. PyTorch's do not.
inline std::optional<ScalarType> gradient_type(at::ScalarType type) noexcept {
  return type == at::ScalarType::Float8_e4m3fn ? kFloat8E4M3FN
         : type == at::ScalarType::Float8_e5m2 ? kFloat8E5M2
                                               : scalar_type(type);
}

// The codes of 8-bit moments, which are bytes, in swamp::Tensor: only the size
// is used.
inline constexpr ScalarType kByteCodes = kFloat8E5M2;

// element_bytes() returns the size of an element; `type` is a result of
// gradient_type(), or kByteCodes.
inline std::size_t element_bytes(ScalarType type) noexcept {
  return type == kFloat64 ? 8 : type == kFloat32 ? 4 : type > kFloat64 ? 1 : 2;
}

// is_aligned() returns whether the address suits elements of that many bytes, a
// power of two: a division would take as long as the rest of a list's checks.
inline bool is_aligned(const void* data, std::size_t bytes) noexcept {
  return (reinterpret_cast<std::uintptr_t>(data) & (bytes - 1)) == 0;
}

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_TENSOR_H_
