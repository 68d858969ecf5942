#include "master/aten/work_list.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "master/aten/layout.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

// Rows of fewer elements cost more as arrays of the list than one by one.
constexpr std::int64_t kMinRowCount = 32;

// Required is what require() has found out on its way.
struct Required {
  ScalarType type;
  bool dense;  // no holes, and no two elements at one address
};

// require() refuses what the operators do not take.
inline Required require(const at::Tensor& tensor, const ListWords& words,
                        bool written) {
  TORCH_CHECK(tensor.is_cpu(), "one of ", words.list, " was not a CPU tensor.");
  TORCH_CHECK(tensor.layout() == at::kStrided, "one of ", words.list,
              " was not a strided tensor.");
  const bool dense =
      tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
  if (written && !dense) at::assert_no_internal_overlap(tensor);
  const std::optional<ScalarType> type = scalar_type(tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(type.has_value(), '"', words.operation,
                              "\" not implemented for '",
                              c10::toString(tensor.scalar_type()), "'");
  return {*type, dense};
}

}  // namespace

void WorkList::assign(at::TensorList tensors, const ListWords& words,
                      bool written) {
  clear();
  road_.reserve(tensors.size());
  extents_.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const auto [type, dense] = require(tensor, words, written);
    const std::int64_t count = tensor.numel();
    if (count == 0) continue;
    // What is only read is never written through this address.
    void* data =
        written ? mutable_data(tensor) : const_cast<void*>(const_data(tensor));
    TORCH_CHECK(data != nullptr, "tensor ", i, " of the list has no memory");
    const std::size_t bytes = element_bytes(type);
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    // A power of two: a division would cost as much as the rest of this.
    const bool aligned = (begin & (bytes - 1)) == 0;
    if (!aligned || !dense) {
      add_rows(tensor, i, static_cast<std::byte*>(data), type, aligned);
      continue;
    }
    // Field by field: a store of three is loaded as one by push_back(), which
    // waits until all have left for the cache.
    Tensor& on_road = road_.emplace_back();
    on_road.data = data;
    on_road.count = static_cast<std::size_t>(count);
    on_road.dtype = type;
    Extent& extent = extents_.emplace_back();
    extent.begin = begin;
    extent.end = begin + on_road.count * bytes;
  }
}

void WorkList::add_rows(const at::Tensor& tensor, std::size_t index,
                        std::byte* data, ScalarType type, bool aligned) {
  const std::size_t bytes = element_bytes(type);
  const Layout layout(tensor);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  extents_.push_back(
      {begin, begin + static_cast<std::size_t>(layout.extent) * bytes});
  if (!aligned || !layout.disjoint || layout.row_count() < kMinRowCount) {
    rest_.push_back(index);
    return;
  }
  const auto row_count = static_cast<std::size_t>(layout.row_count());
  layout.for_each_row([&](std::int64_t offset) {
    road_.push_back(
        {data + static_cast<std::size_t>(offset) * bytes, row_count, type});
  });
}

bool WorkList::holds_float(const void* a, const void* b) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(a);
  const auto also_at = reinterpret_cast<std::uintptr_t>(b);
  bool holds = false;
  for (const Extent& extent : extents_) {
    holds |= (at < extent.end) & (extent.begin < at + sizeof(float));
    holds |= (also_at < extent.end) & (extent.begin < also_at + sizeof(float));
  }
  return holds;
}

}  // namespace swamp::aten
