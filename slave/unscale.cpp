// The unscale and check kernels, compiled once per target by Highway.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "slave/kernel.h"
#include "slave/kernel_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/unscale.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/float_formats-inl.h"
#include "slave/nonfinite-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// A format says how elements lie in memory (unsigned integers `Bits`), which
// exponent bits are all ones in inf and nan, and how a vector of tag DB, of as
// many elements as the format likes best, is multiplied by inv_scale;
// scale_finite() where all of them are finite, and inv_scale too.
template <class Float, class Unsigned, Unsigned kExponentBits>
struct FullFloat {
  using Bits = Unsigned;
  using Scale = Float;
  using DB = hn::ScalableTag<Bits>;
  static constexpr Bits kExponent = kExponentBits;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    const hn::ScalableTag<Float> df;
    return hn::BitCast(DB(),
                       hn::Mul(hn::BitCast(df, x), hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, Scale inv_scale) {
    return scale(x, inv_scale);
  }
};
using Float32 = FullFloat<float, std::uint32_t, 0x7f800000u>;
using Float64 = FullFloat<double, std::uint64_t, 0x7ff0000000000000u>;

// The 16-bit formats are multiplied in float and rounded again: two roundings,
// as PyTorch does it.
struct Float16 {
  using Bits = std::uint16_t;
  using Scale = float;
  using DF = hn::ScalableTag<float>;
  using DB = hn::Rebind<Bits, DF>;
  static constexpr Bits kExponent = 0x7c00u;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    const DF df;
    return narrow_float16(
        df, hn::Mul(widen_float16(df, x), hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, Scale inv_scale) {
    return scale(x, inv_scale);
  }
};

struct BFloat16 {
  using Bits = std::uint16_t;
  using Scale = float;
  using DF = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<DF>;
  static constexpr Bits kExponent = 0x7f80u;
#if HWY_TARGET == HWY_SCALAR
  using DB = hn::Rebind<Bits, DF>;
  template <class Round>
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale,
                                      Round round) {
    const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(DU(), x));
    return hn::TruncateTo(
        DB(), hn::ShiftRight<16>(scale_high(wide, inv_scale, round)));
  }
#else
  // The odd elements of a vector are the upper halves of floats, the even ones
  // become so by a shift: no element changes its place.
  using DB = hn::ScalableTag<Bits>;
  template <class Round>
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale,
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
  // Multiplies float bits and rounds them to the upper half; what is left in
  // the lower half is noise.
  template <class Round>
  static HWY_INLINE hn::Vec<DU> scale_high(hn::Vec<DU> x, Scale inv_scale,
                                           Round round) {
    const DF df;
    return round(hn::Mul(hn::BitCast(df, x), hn::Set(df, inv_scale)));
  }
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    return scale(x, inv_scale, [](hn::Vec<DF> value) HWY_ATTR {
      return round_bfloat16(DF(), value);
    });
  }
  // A product of finite numbers is no nan.
  static HWY_INLINE hn::Vec<DB> scale_finite(hn::Vec<DB> x, Scale inv_scale) {
    return scale(x, inv_scale, [](hn::Vec<DF> value) HWY_ATTR {
      return round_bfloat16_number(DF(), value);
    });
  }
};

// The last elements, fewer than a vector. Masked where the target can do that
// without touching its neighbours, else by a copy. The other lanes hold the
// first of them again, so that they raise no flag of their own (0 * inf).
template <class Format, bool kWrite>
HWY_INLINE void tail(typename Format::Bits* data, std::size_t count,
                     typename Format::Scale inv_scale, std::size_t first,
                     Result& result) {
  using Bits = typename Format::Bits;
  const typename Format::DB db;
#if HWY_TARGET == HWY_AVX3
  const auto mask = hn::FirstN(db, count);
  const auto x = hn::IfThenElse(mask, hn::MaskedLoad(mask, db, data),
                                hn::Set(db, data[0]));
  if (HWY_UNLIKELY(!hn::AllFalse(db, is_nonfinite(db, x, Format::kExponent)))) {
    flag_block<Bits>(data, count, Format::kExponent, first, result);
  }
  if (kWrite) {
    hn::BlendedStore(Format::scale(x, inv_scale), mask, db, data);
  }
#else
  HWY_ALIGN Bits buffer[hn::MaxLanes(typename Format::DB())];
  hn::Store(hn::Set(db, data[0]), db, buffer);
  std::memcpy(buffer, data, count * sizeof(Bits));
  const auto x = hn::Load(db, buffer);
  if (HWY_UNLIKELY(!hn::AllFalse(db, is_nonfinite(db, x, Format::kExponent)))) {
    flag_block<Bits>(data, count, Format::kExponent, first, result);
  }
  if (kWrite) {
    hn::Store(Format::scale(x, inv_scale), db, buffer);
    std::memcpy(data, buffer, count * sizeof(Bits));
  }
#endif
}

template <class Format, bool kWrite>
HWY_INLINE void run(const void* args, const Tile& tile, Result& result) {
  using Bits = typename Format::Bits;
  const typename Format::DB db;
  const std::size_t lanes = hn::Lanes(db);
  const float factor = static_cast<const UnscaleArgs*>(args)->inv_scale;
  const auto inv_scale = static_cast<typename Format::Scale>(factor);
  Bits* data = static_cast<Bits*>(tile.operands[0]);
  const std::size_t count = tile.count;
  const std::size_t first = tile.first;

  const std::size_t block_count = 4 * hn::Lanes(hn::ScalableTag<Bits>());
  const std::size_t ahead = tile.prefetch_bytes;
  const bool finite_scale = !kWrite || std::isfinite(factor);
  std::size_t i = 0;
  for (; i + block_count <= count; i += block_count) {
    Bits* block = data + i;
    if (ahead != 0) {
      // Prefetching beyond the array is harmless: it cannot fault.
      const auto* next = reinterpret_cast<const std::uint8_t*>(block) + ahead;
      for (std::size_t b = 0; b < block_count * sizeof(Bits); b += 64) {
        hwy::Prefetch(next + b);
      }
    }
    if (HWY_UNLIKELY(is_dirty(block, Format::kExponent) || !finite_scale)) {
      flag_block<Bits>(block, block_count, Format::kExponent, first + i,
                       result);
      if (!kWrite) continue;
      for (std::size_t k = 0; k < block_count; k += lanes) {
        const auto x = hn::LoadU(db, block + k);
        hn::StoreU(Format::scale(x, inv_scale), db, block + k);
      }
    } else if (kWrite) {
      for (std::size_t k = 0; k < block_count; k += lanes) {
        const auto x = hn::LoadU(db, block + k);
        hn::StoreU(Format::scale_finite(x, inv_scale), db, block + k);
      }
    }
  }
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(db, data + i);
    if (HWY_UNLIKELY(
            !hn::AllFalse(db, is_nonfinite(db, x, Format::kExponent)))) {
      flag_block<Bits>(data + i, lanes, Format::kExponent, first + i, result);
    }
    if (kWrite) hn::StoreU(Format::scale(x, inv_scale), db, data + i);
  }
  if (i < count) {
    tail<Format, kWrite>(data + i, count - i, inv_scale, first + i, result);
  }
}

template <class Format>
HWY_INLINE void unscale(const void* args, const Tile& tile, Result& result) {
  run<Format, true>(args, tile, result);
}

template <class Format>
HWY_INLINE void check(const void* args, const Tile& tile, Result& result) {
  run<Format, false>(args, tile, result);
}

}  // namespace

SWAMP_DEFINE_KERNEL(unscale_float16, unscale<Float16>)
SWAMP_DEFINE_KERNEL(unscale_bfloat16, unscale<BFloat16>)
SWAMP_DEFINE_KERNEL(unscale_float32, unscale<Float32>)
SWAMP_DEFINE_KERNEL(unscale_float64, unscale<Float64>)
SWAMP_DEFINE_KERNEL(check_float16, check<Float16>)
SWAMP_DEFINE_KERNEL(check_bfloat16, check<BFloat16>)
SWAMP_DEFINE_KERNEL(check_float32, check<Float32>)
SWAMP_DEFINE_KERNEL(check_float64, check<Float64>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
