// The kernels that count zeros, compiled once per target by Highway. Only
// integers are compared: denormals-are-zero would make a subnormal a zero.
#include <cstdint>

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/count_zeros.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/batch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// The bits are compared without the sign, which is shifted out.
template <class Bits>
HWY_INLINE bool is_zero(Bits x) {
  return static_cast<Bits>(x << 1) == 0;
}
template <class D>
HWY_INLINE hn::Mask<D> is_zero(D d, const hn::TFromD<D>* at) {
  return hn::Eq(hn::ShiftLeft<1>(hn::LoadU(d, at)), hn::Zero(d));
}

template <class Format>
HWY_INLINE void count_zeros(const void*, const Tile& tile, Result& result) {
  using Bits = typename Format::Bits;
  const hn::ScalableTag<Bits> d;
  const std::size_t lanes = hn::Lanes(d);
  const Bits* const data = operand<Bits>(tile, 0);
  const std::size_t count = tile.count;
  std::size_t zeros = 0;
  std::size_t lowest = count;
  const auto find_lowest = [&](std::size_t i) {
    while (i < count && !is_zero(data[i])) ++i;
    lowest = i;
  };
  // Whole batches.
  std::size_t i = for_each_batch(
      data, count, tile.prefetch_bytes, [&](std::size_t at) HWY_ATTR {
        const auto k0 = is_zero(d, data + at);
        const auto k1 = is_zero(d, data + at + lanes);
        const auto k2 = is_zero(d, data + at + 2 * lanes);
        const auto k3 = is_zero(d, data + at + 3 * lanes);
        if (hn::AllFalse(d, hn::Or(hn::Or(k0, k1), hn::Or(k2, k3)))) return;
        if (zeros == 0) find_lowest(at);
        zeros += hn::CountTrue(d, k0) + hn::CountTrue(d, k1) +
                 hn::CountTrue(d, k2) + hn::CountTrue(d, k3);
      });
  if (zeros == 0) find_lowest(i);
  // Whole vectors, then the tail.
  for (; i + lanes <= count; i += lanes) {
    zeros += hn::CountTrue(d, is_zero(d, data + i));
  }
  for (; i < count; ++i) zeros += is_zero(data[i]) ? 1 : 0;
  if (zeros != 0) result.flag(tile.first + lowest, zeros);
}

}  // namespace

SWAMP_KERNELS(count_zeros, kUpTo32, count_zeros<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
