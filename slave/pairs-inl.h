// Two vectors of bfloat16, widened and rounded in their places: every other
// element is the upper half of a float, which takes half the instructions.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_PAIRS_INL_H_
#undef SWAMP_SLAVE_PAIRS_INL_H_
#else
#define SWAMP_SLAVE_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr bool kInPairs = true;
#else
inline constexpr bool kInPairs = false;
#endif

struct Pairs {
  static constexpr std::size_t kStep = 2 * kLanes;  // elements
  VF even, odd;

  static HWY_INLINE Pairs load(const std::uint16_t* at) {
    const DF df;
    const auto both = hn::LoadU(hn::RebindToUnsigned<DF>(),
                                reinterpret_cast<const std::uint32_t*>(at));
    return {even_bfloat16(df, both), odd_bfloat16(df, both)};
  }
  // store() rounds, unless kIsRounded. nan is rare; if kIsQuiet, it has no
  // payload.
  template <bool kIsRounded = false, bool kIsQuiet = false>
  HWY_INLINE void store(std::uint16_t* at) const {
    const DF df;
    const hn::RebindToUnsigned<DF> du;
    auto low = hn::BitCast(du, even), high = hn::BitCast(du, odd);
    if (!kIsQuiet && HWY_UNLIKELY(!hn::AllFalse(
                         df, hn::Or(hn::IsNaN(even), hn::IsNaN(odd))))) {
      low = round_bfloat16(df, even), high = round_bfloat16(df, odd);
    } else if constexpr (!kIsRounded) {
      low = round_bfloat16_number(df, even);
      high = round_bfloat16_number(df, odd);
    }
    hn::StoreU(hn::Or(hn::ShiftRight<16>(low),
                      hn::And(high, hn::Set(du, 0xffff0000u))),
               du, reinterpret_cast<std::uint32_t*>(at));
  }
};

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_PAIRS_INL_H_
