// What the operators read of an at::Tensor, the same for PyTorch 1.13 and 2.x.
#ifndef SWAMP_MASTER_ATEN_TENSOR_H_
#define SWAMP_MASTER_ATEN_TENSOR_H_

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "swamp/tensor.h"

namespace swamp::aten {

// mutable_data() and const_data(): PyTorch 2 has tensors that are copied when
// they are first written (torch._lazy_clone).
inline void* mutable_data(const at::Tensor& tensor) {
#if TORCH_VERSION_MAJOR >= 2
  return tensor.unsafeGetTensorImpl()->mutable_data();
#else
  return tensor.unsafeGetTensorImpl()->data();
#endif
}

inline const void* const_data(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->data();
}

// load() and store(): PyTorch's data may be aligned to nothing.
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

// scalar_type() is empty for a dtype that the operators do not take.
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

// element_bytes() of the four dtypes that scalar_type() knows.
inline std::size_t element_bytes(ScalarType type) noexcept {
  return type == kFloat64 ? 8 : type == kFloat32 ? 4 : 2;
}

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_TENSOR_H_
