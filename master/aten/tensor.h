// How the operators read an at::Tensor.
#ifndef SWAMP_MASTER_ATEN_TENSOR_H_
#define SWAMP_MASTER_ATEN_TENSOR_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "swamp/tensor.h"

namespace swamp::aten {

// is_lazy() returns whether a tensor's values differ from those in its memory:
// it has a lazy minus sign or conjugation, or is zeros without memory.
// PyTorch's dispatcher hands no such tensor to most kernels, but callers from
// C++, methods of classes and lists that are written do not go through it.
inline bool is_lazy(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::Negative,
                                      c10::DispatchKey::Conjugate,
                                      c10::DispatchKey::ZeroTensor};
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kKeys);
}

// resolved() returns the tensor, or a copy with its values if it is_lazy().
inline at::Tensor resolved(const at::Tensor& tensor) {
  return is_lazy(tensor) ? tensor.clone() : tensor;
}

// address_of() is only for comparisons: it also takes tensors that const_data()
// refuses, and returns 0 for one without memory.
inline std::uintptr_t address_of(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const void* data = impl->data();  // with the offset, also without memory
  return impl->unsafe_storage().data() != nullptr
             ? reinterpret_cast<std::uintptr_t>(data)
             : 0;
}

// unshare() gives a lazily copied tensor (torch._lazy_clone) its own memory.
inline void unshare(const at::Tensor& tensor) {
  tensor.unsafeGetTensorImpl()->mutable_data();
}

// require_memory() throws unless the tensor's values are in its memory.
inline void require_memory(const at::Tensor& tensor) {
  TORCH_CHECK(!is_lazy(tensor),
              "got a tensor with a lazy minus sign or conjugation, or a zero "
              "tensor, expected its values in memory: call clone()");
  TORCH_CHECK(address_of(tensor) != 0 || tensor.numel() == 0,
              "got a tensor without memory, expected one with its elements in "
              "the memory of the CPU");
}

// const_data() and mutable_data() are the only ways to a tensor's memory. They
// throw for a tensor that is_lazy(), and for one with elements but no memory,
// as a wrapper of another tensor.
//
// mutable_data() does unshare(), so call it before const_data() of a tensor
// that may share memory with this one.
inline void* mutable_data(const at::Tensor& tensor) {
  require_memory(tensor);
  return tensor.unsafeGetTensorImpl()->mutable_data();
}

inline const void* const_data(const at::Tensor& tensor) {
  require_memory(tensor);
  return tensor.unsafeGetTensorImpl()->data();
}

// data_of() and values_of() return mutable_data() and const_data() as elements;
// null for an undefined tensor.
template <class T>
T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(mutable_data(tensor)) : nullptr;
}
template <class T>
const T* values_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(const_data(tensor)) : nullptr;
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

// has_order_of() returns whether element i of the tensor is at element i of the
// memory of `like`.
inline bool has_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (!is_dense(tensor) || is_lazy(tensor)) return false;
  if (tensor.strides() == like.strides() ||
      (tensor.is_contiguous() && like.is_contiguous())) {
    return true;
  }
  if (tensor.sizes() != like.sizes()) return false;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    // One element may have any stride.
    if (tensor.size(i) != 1 && tensor.stride(i) != like.stride(i)) return false;
  }
  return true;
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
inline bool is_aligned(std::uintptr_t address, std::size_t bytes) noexcept {
  return (address & (bytes - 1)) == 0;
}
inline bool is_aligned(const void* data, std::size_t bytes) noexcept {
  return is_aligned(reinterpret_cast<std::uintptr_t>(data), bytes);
}

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_TENSOR_H_
