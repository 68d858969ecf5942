#include "master/aten/step_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <cstdint>

#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

bool is_dense(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

bool is_aligned(const void* data, ScalarType type) {
  return reinterpret_cast<std::uintptr_t>(data) % element_bytes(type) == 0;
}

// lies_like() is true when the tensor's memory can be used as it is.
bool lies_like(const at::Tensor& tensor, const at::Tensor& like) {
  return is_dense(tensor) && (tensor.strides() == like.strides() ||
                              (tensor.is_contiguous() && like.is_contiguous()));
}

}  // namespace

void StepTensors::assign(at::TensorList tensors, const at::TensorList* like,
                         bool written) {
  clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const at::Tensor& order = like != nullptr ? (*like)[i] : tensor;
    const ScalarType type = *scalar_type(tensor.scalar_type());
    at::Tensor used = tensor;
    if (!lies_like(tensor, order) || !is_aligned(const_data(tensor), type)) {
      used = is_dense(order) ? at::empty_strided(order.sizes(), order.strides(),
                                                 tensor.options())
                             : at::empty(order.sizes(), tensor.options());
      used.copy_(tensor);
      copies_.push_back({written ? tensor : at::Tensor(), used});
    }
    void* data = nullptr;
    if (used.numel() != 0) {
      data = written ? mutable_data(used) : const_cast<void*>(const_data(used));
    }
    tensors_.push_back({data, static_cast<std::size_t>(used.numel()), type});
  }
}

void StepTensors::copy_back() {
  for (Copy& one : copies_) {
    if (one.original.defined()) one.original.copy_(one.copy);
  }
}

}  // namespace swamp::aten
