// Per-target tests for inf and nan, on integer bits. `exponent` is the exponent
// bits of the format. Re-included once per target, as Highway's own -inl.h.
#if defined(SWAMP_SLAVE_NONFINITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_NONFINITE_INL_H_
#undef SWAMP_SLAVE_NONFINITE_INL_H_
#else
#define SWAMP_SLAVE_NONFINITE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "slave/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// flag_block() counts the non-finite elements of a block that is known to hold
// some. Out of line: clean blocks never come here.
template <class Bits>
HWY_NOINLINE void flag_block(const Bits* data, std::size_t count, Bits exponent,
                             std::size_t first, Result& result) {
  std::size_t flagged = 0;
  std::size_t lowest = 0;
  for (std::size_t i = count; i-- > 0;) {
    if ((data[i] & exponent) == exponent) {
      ++flagged;
      lowest = i;
    }
  }
  if (flagged != 0) result.flag(first + lowest, flagged);
}

template <class D>
HWY_INLINE hn::Mask<D> is_nonfinite(D d, hn::Vec<D> x, hn::TFromD<D> exponent) {
  const auto all_ones = hn::Set(d, exponent);
  return hn::Eq(hn::And(x, all_ones), all_ones);
}

// is_dirty() tests a whole block at once: four full vectors.
template <class Bits>
HWY_INLINE bool is_dirty(const Bits* block, Bits exponent) {
  const hn::ScalableTag<Bits> d;
  const std::size_t lanes = hn::Lanes(d);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // All ones are the largest that the exponent can be; masks are dearer.
  if (sizeof(Bits) < 8) {
    const auto all_ones = hn::Set(d, exponent);
    const auto part = [&](std::size_t k) HWY_ATTR {
      return hn::And(hn::LoadU(d, block + k * lanes), all_ones);
    };
    const auto largest =
        hn::Max(hn::Max(part(0), part(1)), hn::Max(part(2), part(3)));
    return !hn::AllFalse(d, hn::Eq(largest, all_ones));
  }
#endif
  const auto test = [&](std::size_t k) HWY_ATTR {
    return is_nonfinite(d, hn::LoadU(d, block + k * lanes), exponent);
  };
  const auto bad = hn::Or(hn::Or(test(0), test(1)), hn::Or(test(2), test(3)));
  return !hn::AllFalse(d, bad);
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_NONFINITE_INL_H_
