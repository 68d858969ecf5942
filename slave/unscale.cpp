// The unscale and check kernels, compiled once per target by Highway. A batch
// of four vectors is tested for inf and nan by one branch, then multiplied;
// only a batch that has some is examined element by element. bfloat16 times a
// power of two, the usual case, is an addition to the exponents.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/unscale.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/batch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// Scaling multiplies a vector of elements, as bits with tag DB, by inv_scale;
// scale_finite() does the same and requires that all of them, and inv_scale,
// are finite.
template <class Format>
struct Scaling {
  using Bits = typename Format::Bits;
  using Float = typename Format::Float;
  using DB = hn::ScalableTag<Bits>;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Float inv_scale) {
    const hn::ScalableTag<Float> df;
    return hn::BitCast(DB(),
                       hn::Mul(hn::BitCast(df, x), hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, Float inv_scale) {
    return scale(x, inv_scale);
  }
};

// The formats of 16 and 8 bits multiply in float and round again: two
// roundings, as PyTorch does it.
template <class Format>
struct ScalingInFloat {
  using DF = hn::ScalableTag<float>;
  using DB = hn::Rebind<typename Format::Bits, DF>;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, float inv_scale) {
    const DF df;
    return Format::narrow(
        df, hn::Mul(Format::widen(df, x), hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, float inv_scale) {
    return scale(x, inv_scale);
  }
};
template <>
struct Scaling<Float16> : ScalingInFloat<Float16> {};
template <ScalarType kType>
struct Scaling<Float8<kType>> : ScalingInFloat<Float8<kType>> {};

template <>
struct Scaling<BFloat16> {
  using Bits = std::uint16_t;
  using DF = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<DF>;
#if HWY_TARGET == HWY_SCALAR
  using DB = hn::Rebind<Bits, DF>;
  template <class Round>
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, float inv_scale,
                                      Round round) {
    const auto wide = even_bfloat16(DF(), hn::PromoteTo(DU(), x));
    return hn::TruncateTo(
        DB(), hn::ShiftRight<16>(scale_high(wide, inv_scale, round)));
  }
#else
  using DB = hn::ScalableTag<Bits>;
  template <class Round>
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, float inv_scale,
                                      Round round) {
    const DU du;
    const auto pairs = hn::BitCast(du, x);
    const auto upper = hn::Set(du, 0xffff0000u);
    const auto even = scale_high(even_bfloat16(DF(), pairs), inv_scale, round);
    const auto odd = scale_high(odd_bfloat16(DF(), pairs), inv_scale, round);
    return hn::BitCast(DB(),
                       hn::Or(hn::ShiftRight<16>(even), hn::And(odd, upper)));
  }
#endif
  // Multiplies floats and rounds them to the upper half of their bits; the
  // lower half is undefined.
  template <class Round>
  static HWY_INLINE hn::Vec<DU> scale_high(hn::Vec<DF> x, float inv_scale,
                                           Round round) {
    const DF df;
    return round(hn::Mul(x, hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, float inv_scale) {
    return scale(x, inv_scale, [](hn::Vec<DF> value) HWY_ATTR {
      return round_bfloat16(DF(), value);
    });
  }
  // A product of finite numbers is not nan.
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, float inv_scale) {
    return scale(x, inv_scale, [](hn::Vec<DF> value) HWY_ATTR {
      return round_bfloat16_number(DF(), value);
    });
  }
};

// ExponentShift multiplies a batch of bfloat16 by +-2^k in integers: k is added
// to the exponents. That is half the work of a conversion to float and back,
// and exact, so no rounding mode or flush of subnormals makes a difference.
class ExponentShift {
 public:
  using Bits = std::uint16_t;

  explicit HWY_INLINE ExponentShift(float factor) {
    std::uint32_t bits;
    std::memcpy(&bits, &factor, sizeof bits);
    const int k = static_cast<int>(bits >> 23 & 0xff) - 127;
    is_power_ = (bits & 0x7fffff) == 0 && k > -127 && k < 128;
    const int smallest = k < 0 ? 1 - k : 1;  // exponents, as they are stored
    const int largest = k > 0 ? 254 - k : 254;
    sign_ = static_cast<Bits>(bits >> 16 & 0x8000);
    shift_ = static_cast<Bits>(sign_ + k * 128);
    below_ = static_cast<Bits>((smallest << 7) - 1);
    above_ = static_cast<Bits>((largest << 7) + 0x7f);
  }

  // scale() returns false, and has written nothing, if the factor is not a
  // power of two, or if an element or a product is inf, nan or subnormal.
  HWY_INLINE bool scale(Bits* batch) const {
    if (!is_power_) return false;
    const hn::ScalableTag<Bits> d;
    const std::size_t lanes = hn::Lanes(d);
    const auto zero = hn::Zero(d);
    const auto one = hn::Set(d, Bits{1});
    const auto magnitude_bits = hn::Set(d, Bits{0x7fff});
    const auto x0 = hn::LoadU(d, batch);
    const auto x1 = hn::LoadU(d, batch + lanes);
    const auto x2 = hn::LoadU(d, batch + 2 * lanes);
    const auto x3 = hn::LoadU(d, batch + 3 * lanes);
    const auto m0 = hn::And(x0, magnitude_bits);
    const auto m1 = hn::And(x1, magnitude_bits);
    const auto m2 = hn::And(x2, magnitude_bits);
    const auto m3 = hn::And(x3, magnitude_bits);
    const auto largest = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
    // 0 is allowed: 0 - 1 is the largest number.
    const auto smallest = hn::Min(hn::Min(hn::Sub(m0, one), hn::Sub(m1, one)),
                                  hn::Min(hn::Sub(m2, one), hn::Sub(m3, one)));
    const auto outside = hn::Or(
        hn::Ne(hn::Max(largest, hn::Set(d, above_)), hn::Set(d, above_)),
        hn::Ne(hn::Min(smallest, hn::Set(d, below_)), hn::Set(d, below_)));
    if (HWY_UNLIKELY(!hn::AllFalse(d, outside))) return false;
    const auto sign = hn::Set(d, sign_);
    const auto shift = hn::Set(d, shift_);
    const auto store = [&](hn::Vec<decltype(d)> x, hn::Vec<decltype(d)> m,
                           Bits* at) HWY_ATTR {
      const auto term = hn::IfThenElse(hn::Eq(m, zero), sign, shift);
      hn::StoreU(hn::Add(x, term), d, at);
    };
    store(x0, m0, batch);
    store(x1, m1, batch + lanes);
    store(x2, m2, batch + 2 * lanes);
    store(x3, m3, batch + 3 * lanes);
    return true;
  }

 private:
  bool is_power_;
  Bits sign_, shift_;
  Bits below_;  // the smallest magnitude minus 1
  Bits above_;  // the largest magnitude
};

// scale_tail() checks and, with kWrite, scales fewer elements than a vector
// has. Masked if the target can do that without accessing the neighbours, else
// by a copy. The other lanes hold the first element again, so that they raise
// no floating-point flags of their own (0 * inf).
template <class Format, bool kWrite>
HWY_INLINE void scale_tail(typename Format::Bits* data, std::size_t count,
                           typename Format::Float inv_scale, std::size_t first,
                           Result& result) {
  using Bits = typename Format::Bits;
  const typename Scaling<Format>::DB db;
#if HWY_TARGET == HWY_AVX3
  const auto mask = hn::FirstN(db, count);
  const auto x = hn::IfThenElse(mask, hn::MaskedLoad(mask, db, data),
                                hn::Set(db, data[0]));
#else
  HWY_ALIGN Bits copy[hn::MaxLanes(typename Scaling<Format>::DB())];
  hn::Store(hn::Set(db, data[0]), db, copy);
  std::memcpy(copy, data, count * sizeof(Bits));
  const auto x = hn::Load(db, copy);
#endif
  if (any_nonfinite(db, x, Format::kNonfinite)) {
    flag_nonfinite<Bits>(data, count, Format::kNonfinite, first, result);
  }
  if (!kWrite) return;
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(Scaling<Format>::scale(x, inv_scale), mask, db, data);
#else
  hn::Store(Scaling<Format>::scale(x, inv_scale), db, copy);
  std::memcpy(data, copy, count * sizeof(Bits));
#endif
}

// scale_rest() is what follows the whole batches.
template <class Format, bool kWrite>
HWY_INLINE void scale_rest(typename Format::Bits* data, std::size_t i,
                           const Tile& tile, typename Format::Float inv_scale,
                           Result& result) {
  using Bits = typename Format::Bits;
  const typename Scaling<Format>::DB db;
  const std::size_t lanes = hn::Lanes(db);
  // Whole vectors.
  for (; i + lanes <= tile.count; i += lanes) {
    const auto x = hn::LoadU(db, data + i);
    if (any_nonfinite(db, x, Format::kNonfinite)) {
      flag_nonfinite<Bits>(data + i, lanes, Format::kNonfinite, tile.first + i,
                           result);
    }
    if (kWrite) hn::StoreU(Scaling<Format>::scale(x, inv_scale), db, data + i);
  }
  // The tail.
  if (i < tile.count) {
    scale_tail<Format, kWrite>(data + i, tile.count - i, inv_scale,
                               tile.first + i, result);
  }
}

template <class Format>
HWY_INLINE void unscale(const void* args, const Tile& tile, Result& result) {
  using Bits = typename Format::Bits;
  const typename Scaling<Format>::DB db;
  const std::size_t lanes = hn::Lanes(db);
  const std::size_t batch = batch_elements<Bits>();
  const float factor = static_cast<const UnscaleArgs*>(args)->inv_scale;
  const auto inv_scale = static_cast<typename Format::Float>(factor);
  const bool finite_scale = std::isfinite(factor);
  Bits* const data = operand<Bits>(tile, 0);
  const ExponentShift exponents(factor);
  // Whole batches.
  const std::size_t i = for_each_batch(
      data, tile.count, tile.prefetch_bytes, [&](std::size_t at) HWY_ATTR {
        Bits* const part = data + at;
        if constexpr (std::is_same_v<Format, BFloat16>) {
          if (HWY_LIKELY(exponents.scale(part))) return;
        }
        if (HWY_UNLIKELY(batch_has_nonfinite(part, Format::kNonfinite) ||
                         !finite_scale)) {
          flag_nonfinite<Bits>(part, batch, Format::kNonfinite, tile.first + at,
                               result);
          for (std::size_t k = 0; k < batch; k += lanes) {
            const auto x = hn::LoadU(db, part + k);
            hn::StoreU(Scaling<Format>::scale(x, inv_scale), db, part + k);
          }
        } else {
          for (std::size_t k = 0; k < batch; k += lanes) {
            const auto x = hn::LoadU(db, part + k);
            hn::StoreU(Scaling<Format>::scale_finite(x, inv_scale), db,
                       part + k);
          }
        }
      });
  scale_rest<Format, true>(data, i, tile, inv_scale, result);
}

template <class Format>
HWY_INLINE void check(const void*, const Tile& tile, Result& result) {
  using Bits = typename Format::Bits;
  Bits* const data = operand<Bits>(tile, 0);
  const std::size_t i =
      check_batches<Bits>(data, tile.count, Format::kNonfinite, tile.first,
                          tile.prefetch_bytes, result);
  scale_rest<Format, false>(data, i, tile, 1, result);
}

}  // namespace

SWAMP_KERNELS(unscale, kGradients, unscale<A>)
SWAMP_KERNELS(check, kGradients, check<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
