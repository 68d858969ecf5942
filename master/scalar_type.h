#ifndef SWAMP_MASTER_SCALAR_TYPE_H_
#define SWAMP_MASTER_SCALAR_TYPE_H_

#include <cstdint>
#include <cstring>

#include "swamp/tensor.h"

namespace swamp::master {

inline constexpr int kScalarTypeCount = 6;
inline constexpr std::uint16_t kScalarTypeBytes[kScalarTypeCount] = {2, 2, 4,
                                                                     8, 1, 1};
// The operators that compute take the first so many of the list; float8 is a
// format of storage.
inline constexpr int kComputeTypeCount = 4;

// scalar_type_index() reads a dtype that a C caller may have set to anything;
// as an enum, a value outside of its list could not even be looked at.
inline std::uint32_t scalar_type_index(const Tensor& tensor) noexcept {
  static_assert(sizeof(ScalarType) == sizeof(std::uint32_t));
  std::uint32_t index;
  std::memcpy(&index, &tensor.dtype, sizeof index);
  return index;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_SCALAR_TYPE_H_
