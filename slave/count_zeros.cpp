// The kernels that count zeros, compiled once per target by Highway. Only
// integers are compared: under denormals-are-zero a subnormal is no zero.
#include <cstdint>

#include "slave/kernel.h"
#include "slave/kernel_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/count_zeros.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Bits are all but the sign, which is shifted out.
template <class Bits>
HWY_INLINE bool is_zero(Bits x) {
  return static_cast<Bits>(x << 1) == 0;
}
template <class D>
HWY_INLINE hn::Mask<D> is_zero(D d, const hn::TFromD<D>* at) {
  return hn::Eq(hn::ShiftLeft<1>(hn::LoadU(d, at)), hn::Zero(d));
}

template <class Bits>
HWY_INLINE void count_zeros(const void*, const Tile& tile, Result& result) {
  const hn::ScalableTag<Bits> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t block = 4 * lanes;
  const Bits* data = static_cast<const Bits*>(tile.operands[0]);
  const std::size_t count = tile.count;
  const std::size_t ahead = tile.prefetch_bytes;
  const auto prefetch = [&](std::size_t i) HWY_ATTR {
    if (ahead == 0) return;
    // Prefetching beyond the array is harmless: it cannot fault.
    const auto* next = reinterpret_cast<const std::uint8_t*>(data + i) + ahead;
    for (std::size_t b = 0; b < block * sizeof(Bits); b += 64) {
      hwy::Prefetch(next + b);
    }
  };

  // Up to the first block that has any.
  std::size_t i = 0;
  for (; i + block <= count; i += block) {
    prefetch(i);
    const auto any =
        hn::Or(hn::Or(is_zero(d, data + i), is_zero(d, data + i + lanes)),
               hn::Or(is_zero(d, data + i + 2 * lanes),
                      is_zero(d, data + i + 3 * lanes)));
    if (HWY_UNLIKELY(!hn::AllFalse(d, any))) break;
  }
  std::size_t lowest = i;
  while (lowest < count && !is_zero(data[lowest])) ++lowest;

  // From there on they are only counted.
  std::size_t zeros = 0;
  for (; i + block <= count; i += block) {
    prefetch(i);
    zeros += hn::CountTrue(d, is_zero(d, data + i)) +
             hn::CountTrue(d, is_zero(d, data + i + lanes)) +
             hn::CountTrue(d, is_zero(d, data + i + 2 * lanes)) +
             hn::CountTrue(d, is_zero(d, data + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) {
    zeros += hn::CountTrue(d, is_zero(d, data + i));
  }
  for (; i < count; ++i) zeros += is_zero(data[i]) ? 1 : 0;
  if (zeros != 0) result.flag(tile.first + lowest, zeros);
}

}  // namespace

SWAMP_DEFINE_KERNEL(count_zeros_float16, count_zeros<std::uint16_t>)
SWAMP_DEFINE_KERNEL(count_zeros_bfloat16, count_zeros<std::uint16_t>)
SWAMP_DEFINE_KERNEL(count_zeros_float32, count_zeros<std::uint32_t>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
