// The unscale and check kernels, compiled once per target by Highway.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "slave/kernel_list.h"

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

// The 16-bit formats multiply in float and round again: two roundings, as
// PyTorch does it.
template <>
struct Scaling<Float16> {
  using Bits = std::uint16_t;
  using DF = hn::ScalableTag<float>;
  using DB = hn::Rebind<Bits, DF>;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, float inv_scale) {
    const DF df;
    return narrow_float16(
        df, hn::Mul(widen_float16(df, x), hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, float inv_scale) {
    return scale(x, inv_scale);
  }
};

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
    const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(DU(), x));
    return hn::TruncateTo(
        DB(), hn::ShiftRight<16>(scale_high(wide, inv_scale, round)));
  }
#else
  // The odd elements of a vector are the upper halves of floats, and a shift
  // makes the even ones so: no element changes its place.
  using DB = hn::ScalableTag<Bits>;
  template <class Round>
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, float inv_scale,
                                      Round round) {
    const DU du;
    const auto pairs = hn::BitCast(du, x);
    const auto upper = hn::Set(du, 0xffff0000u);
    const auto even = scale_high(hn::ShiftLeft<16>(pairs), inv_scale, round);
    const auto odd = scale_high(hn::And(pairs, upper), inv_scale, round);
    return hn::BitCast(DB(),
                       hn::Or(hn::ShiftRight<16>(even), hn::And(odd, upper)));
  }
#endif
  // Multiplies float bits and rounds them to the upper half; the lower half is
  // undefined.
  template <class Round>
  static HWY_INLINE hn::Vec<DU> scale_high(hn::Vec<DU> x, float inv_scale,
                                           Round round) {
    const DF df;
    return round(hn::Mul(hn::BitCast(df, x), hn::Set(df, inv_scale)));
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
  if (any_nonfinite(db, x, Format::kExponent)) {
    flag_nonfinite<Bits>(data, count, Format::kExponent, first, result);
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
    if (any_nonfinite(db, x, Format::kExponent)) {
      flag_nonfinite<Bits>(data + i, lanes, Format::kExponent, tile.first + i,
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
  // Whole batches.
  const std::size_t i = for_each_batch(
      data, tile.count, tile.prefetch_bytes, [&](std::size_t at) HWY_ATTR {
        Bits* const part = data + at;
        if (HWY_UNLIKELY(batch_has_nonfinite(part, Format::kExponent) ||
                         !finite_scale)) {
          flag_nonfinite<Bits>(part, batch, Format::kExponent, tile.first + at,
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
      check_batches<Bits>(data, tile.count, Format::kExponent, tile.first,
                          tile.prefetch_bytes, result);
  scale_rest<Format, false>(data, i, tile, 1, result);
}

}  // namespace

SWAMP_KERNELS(unscale, unscale<A>)
SWAMP_KERNELS(check, check<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
