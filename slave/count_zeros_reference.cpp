#include <cstdint>

#include "slave/kernel_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

// A zero has no bit but the sign's. Not by a comparison of floats, to which a
// subnormal is 0 under denormals-are-zero.
template <class Bits, Bits sign>
void count_zeros(const void*, const Tile& tile, Result& result) {
  const auto* data = static_cast<const Bits*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (data[i] == 0 || data[i] == sign) result.flag(tile.first + i, 1);
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(count_zeros_float16, count_zeros<std::uint16_t, 0x8000u>)
SWAMP_DEFINE_KERNEL(count_zeros_bfloat16, count_zeros<std::uint16_t, 0x8000u>)
SWAMP_DEFINE_KERNEL(count_zeros_float32,
                    count_zeros<std::uint32_t, 0x80000000u>)

}  // namespace swamp::slave::reference
