#include <cstdint>

#include "slave/kernel_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

// A zero has no bit set but the sign. Comparing floats would make a subnormal 0
// under denormals-are-zero.
template <class Format>
void count_zeros(const void*, const Tile& tile, Result& result) {
  const auto* data =
      static_cast<const typename Format::Bits*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if ((data[i] & ~Format::kFormat.sign()) == 0)
      result.flag(tile.first + i, 1);
  }
}

}  // namespace

SWAMP_DEFINE_KERNEL(count_zeros_float16, count_zeros<Float16>)
SWAMP_DEFINE_KERNEL(count_zeros_bfloat16, count_zeros<BFloat16>)
SWAMP_DEFINE_KERNEL(count_zeros_float32, count_zeros<Float32>)

}  // namespace swamp::slave::reference
