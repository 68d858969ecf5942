#include <cstdint>

#include "slave/count_zeros.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

// A zero has no bit but the sign's. Not by a comparison of floats, to which a
// subnormal is 0 under denormals-are-zero.
template <class Bits>
void count_zeros(Bits sign, void* const* tiles, std::size_t count,
                 std::size_t first, Result& result) {
  const auto* data = static_cast<const Bits*>(tiles[0]);
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] == 0 || data[i] == sign) result.flag(first + i, 1);
  }
}

}  // namespace

void count_zeros_float16(const void*, void* const* tiles, std::size_t count,
                         std::size_t first, Result& result) {
  count_zeros<std::uint16_t>(0x8000u, tiles, count, first, result);
}
void count_zeros_bfloat16(const void*, void* const* tiles, std::size_t count,
                          std::size_t first, Result& result) {
  count_zeros<std::uint16_t>(0x8000u, tiles, count, first, result);
}
void count_zeros_float32(const void*, void* const* tiles, std::size_t count,
                         std::size_t first, Result& result) {
  count_zeros<std::uint32_t>(0x80000000u, tiles, count, first, result);
}

}  // namespace swamp::slave::reference
