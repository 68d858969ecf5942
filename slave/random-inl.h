// The random bits of stochastic rounding, per target. Included once per target,
// like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_RANDOM_INL_H_
#undef SWAMP_SLAVE_RANDOM_INL_H_
#else
#define SWAMP_SLAVE_RANDOM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "slave/formats-inl.h"
#include "slave/kernel_args.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

// RandomWords is rounding_bits() of whole vectors.
class RandomWords {
 public:
  using D = hn::ScalableTag<std::uint32_t>;
  using V = hn::Vec<D>;

  explicit HWY_INLINE RandomWords(const RoundingKey& key)
      : offset_(hn::Iota(D(), key.offset)), mix_(hn::Set(D(), key.mix)) {}

  // The word for weight and m, of the elements from `index` on.
  HWY_INLINE V first(std::uint32_t index) const {
    V x = hn::Add(offset_, hn::Set(D(), index));
    x = hn::Xor(multiplied<0>(hn::Xor(x, hn::ShiftRight<17>(x))), mix_);
    x = multiplied<1>(hn::Xor(x, hn::ShiftRight<11>(x)));
    x = multiplied<2>(hn::Xor(x, hn::ShiftRight<15>(x)));
    return hn::Xor(x, hn::ShiftRight<14>(x));
  }
  // That for v.
  static HWY_INLINE V second(V first) { return multiplied<3>(first); }

 private:
  template <int i>
  static HWY_INLINE V multiplied(V x) {
    return hn::Mul(x, hn::Set(D(), kMixFactors[i]));
  }
  V offset_, mix_;
};

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_RANDOM_INL_H_
