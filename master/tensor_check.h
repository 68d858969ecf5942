// What must be true of a tensor before its address is used, and the words for
// what is not.
#ifndef SWAMP_MASTER_TENSOR_CHECK_H_
#define SWAMP_MASTER_TENSOR_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "master/scalar_type.h"

namespace swamp::master {

// No array is larger than a pointer difference can say.
inline constexpr std::size_t kMaxBytes = ~std::size_t{0} >> 1;

inline constexpr std::size_t kMaxElements[kScalarTypeCount] = {
    kMaxBytes / 2, kMaxBytes / 2, kMaxBytes / 4,
    kMaxBytes / 8, kMaxBytes,     kMaxBytes};

// is_valid_data() looks at a tensor of a known dtype. Without divisions: two
// of them were a third of what a small tensor costs.
inline bool is_valid_data(const Tensor& tensor, std::uint32_t type) noexcept {
  const std::size_t bytes = kScalarTypeBytes[type];
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.count == 0) return true;
  return tensor.data != nullptr && (address & (bytes - 1)) == 0 &&
         tensor.count <= kMaxElements[type];
}

// fail_data() throws what is_valid_data() found in tensor `index` of `list`.
[[noreturn]] void fail_data(const char* list, std::size_t index,
                            const Tensor& tensor);

// fail_dtype() throws that only the dtypes in `taken` (bit i: type i) are.
[[noreturn]] void fail_dtype(const char* list, std::size_t index,
                             const Tensor& tensor, std::uint32_t taken);

// require_list() throws when the list itself is no array, or one so long that a
// table of `stride` bytes a tensor is impossible.
void require_list(const char* list, const char* count_name, TensorList tensors,
                  std::size_t stride);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_TENSOR_CHECK_H_
