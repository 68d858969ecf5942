#include "master/aten/tensor_list.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

struct Checked {
  ScalarType type;
  bool dense;
};

// checked() throws for tensors that the operators do not accept.
inline Checked checked(const at::Tensor& tensor, const ListNames& names,
                       bool written) {
  TORCH_CHECK(tensor.is_cpu(), "one of ", names.list, " was not a CPU tensor.");
  TORCH_CHECK(tensor.layout() == at::kStrided, "one of ", names.list,
              " was not a strided tensor.");
  TORCH_CHECK(!written || !tensor._is_zerotensor(), "one of ", names.list,
              " was a zero tensor, which cannot be written: call clone()");
  const bool dense = is_dense(tensor);
  if (written && !dense) at::assert_no_internal_overlap(tensor);
  const std::optional<ScalarType> type =
      names.float8 ? gradient_type(tensor.scalar_type())
                   : scalar_type(tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(type.has_value(), '"', names.operation,
                              "\" not implemented for '",
                              c10::toString(tensor.scalar_type()), "'");
  return {*type, dense};
}

// elements_of() returns the data of a tensor that has elements. A lazy minus
// sign is left out: it changes only the sign of a product.
void* elements_of(const at::Tensor& tensor, bool written) {
  if (tensor.is_neg()) return elements_of(at::_neg_view(tensor), written);
  // The const is cast away for the type of swamp::Tensor only.
  return written ? mutable_data(tensor) : const_cast<void*>(const_data(tensor));
}

}  // namespace

void SplitList::assign(at::TensorList tensors, const ListNames& names,
                       bool written) {
  clear();
  arrays_.reserve(tensors.size());
  extents_.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const auto [type, dense] = checked(tensor, names, written);
    const std::int64_t count = tensor.numel();
    if (count == 0 || tensor._is_zerotensor()) continue;
    TORCH_CHECK(address_of(tensor) != 0, "tensor ", i,
                " of the list has no memory");
    void* data = elements_of(tensor, written);
    const std::size_t bytes = element_bytes(type);
    Extent& extent = extents_.emplace_back();
    extent.begin = reinterpret_cast<std::uintptr_t>(data);
    if (!dense) {
      const Layout layout(tensor);
      extent.end =
          extent.begin + static_cast<std::size_t>(layout.extent) * bytes;
      disjoint_ = disjoint_ && layout.disjoint;
      others_.push_back(i);
      continue;
    }
    extent.end = extent.begin + static_cast<std::size_t>(count) * bytes;
    if (!is_aligned(data, bytes)) {
      others_.push_back(i);
      continue;
    }
    // Assigned field by field: push_back() of a temporary would read back as a
    // whole what was just written in parts, which stalls the CPU.
    Tensor& array = arrays_.emplace_back();
    array.data = data;
    array.count = static_cast<std::size_t>(count);
    array.dtype = type;
  }
}

bool SplitList::may_hold_float(const void* a, const void* b) const noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  bool holds = false;
  for (const Extent& extent : extents_) {
    holds |= (first < extent.end) & (extent.begin < first + sizeof(float));
    holds |= (second < extent.end) & (extent.begin < second + sizeof(float));
  }
  return holds;
}

void StepTensors::assign(at::TensorList tensors, const at::TensorList* like,
                         bool written, bool by_index) {
  clear();
  tensors_.reserve(tensors.size());
  const auto add = [&](const at::Tensor& tensor, ScalarType type) {
    void* data = tensor.numel() == 0 ? nullptr
                 : written           ? mutable_data(tensor)
                                     : const_cast<void*>(const_data(tensor));
    tensors_.push_back({data, static_cast<std::size_t>(tensor.numel()), type});
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const at::Tensor& order = like != nullptr ? (*like)[i] : tensor;
    const ScalarType type =
        gradient_type(tensor.scalar_type()).value_or(kByteCodes);
    const bool in_order = by_index ? tensor.is_contiguous() && !is_lazy(tensor)
                                   : has_order_of(tensor, order);
    if (in_order && is_aligned(address_of(tensor), element_bytes(type))) {
      add(tensor, type);
      continue;
    }
    const at::Tensor copy =
        !by_index && is_dense(order)
            ? at::empty_strided(order.sizes(), order.strides(),
                                tensor.options())
            : at::empty(order.sizes(), tensor.options());
    copy.copy_(tensor);
    copies_.push_back({written ? tensor : at::Tensor(), copy});
    add(copy, type);
  }
}

void StepTensors::copy_back() {
  for (Copy& one : copies_) {
    if (one.original.defined()) one.original.copy_(one.copy);
  }
}

}  // namespace swamp::aten
