// The unscale and check kernels, compiled once per target by Highway.
#include "slave/unscale.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "swamp/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/unscale.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/float_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// A format says how elements lie in memory (unsigned integers `Bits`, in
// vectors of tag DB), which exponent bits are all ones in inf and nan, and what
// an element becomes when it is multiplied by inv_scale.
struct Float32 {
  using Bits = std::uint32_t;
  using Scale = float;
  using DB = hn::ScalableTag<Bits>;
  static constexpr Bits kExponent = 0x7f800000u;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    const hn::ScalableTag<float> df;
    return hn::BitCast(DB(),
                       hn::Mul(hn::BitCast(df, x), hn::Set(df, inv_scale)));
  }
};

struct Float64 {
  using Bits = std::uint64_t;
  using Scale = double;
  using DB = hn::ScalableTag<Bits>;
  static constexpr Bits kExponent = 0x7ff0000000000000u;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    const hn::ScalableTag<double> df;
    return hn::BitCast(DB(),
                       hn::Mul(hn::BitCast(df, x), hn::Set(df, inv_scale)));
  }
};

// The 16-bit formats are multiplied in float and rounded again: two roundings,
// as PyTorch does it.
struct Float16 {
  using Bits = std::uint16_t;
  using Scale = float;
  using DF = hn::ScalableTag<float>;
  using DB = hn::Rebind<std::uint16_t, DF>;
  static constexpr Bits kExponent = 0x7c00u;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    const DF df;
    return narrow_float16(
        df, hn::Mul(widen_float16(df, x), hn::Set(df, inv_scale)));
  }
};

struct BFloat16 {
  using Bits = std::uint16_t;
  using Scale = float;
  using DF = hn::ScalableTag<float>;
  using DB = hn::Rebind<std::uint16_t, DF>;
  static constexpr Bits kExponent = 0x7f80u;
  static HWY_INLINE hn::Vec<DB> scale(hn::Vec<DB> x, Scale inv_scale) {
    const DF df;
    return narrow_bfloat16(
        df, hn::Mul(widen_bfloat16(df, x), hn::Set(df, inv_scale)));
  }
};

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

template <class Format>
HWY_INLINE hn::Mask<typename Format::DB> is_nonfinite(
    hn::Vec<typename Format::DB> x) {
  const typename Format::DB db;
  const auto exponent = hn::Set(db, Format::kExponent);
  return hn::Eq(hn::And(x, exponent), exponent);
}

// The last elements, fewer than a vector. Masked where the target can do that
// without touching its neighbours, else by a copy.
template <class Format, bool kWrite>
HWY_INLINE void tail(typename Format::Bits* data, std::size_t count,
                     typename Format::Scale inv_scale, std::size_t first,
                     Result& result) {
  using Bits = typename Format::Bits;
  const typename Format::DB db;
#if HWY_TARGET == HWY_AVX3
  const auto mask = hn::FirstN(db, count);
  const auto x = hn::MaskedLoad(mask, db, data);
  if (HWY_UNLIKELY(!hn::AllFalse(db, is_nonfinite<Format>(x)))) {
    flag_block<Bits>(data, count, Format::kExponent, first, result);
  }
  if (kWrite) {
    hn::BlendedStore(Format::scale(x, inv_scale), mask, db, data);
  }
#else
  HWY_ALIGN Bits buffer[hn::MaxLanes(typename Format::DB())] = {};
  std::memcpy(buffer, data, count * sizeof(Bits));
  const auto x = hn::Load(db, buffer);
  if (HWY_UNLIKELY(!hn::AllFalse(db, is_nonfinite<Format>(x)))) {
    flag_block<Bits>(data, count, Format::kExponent, first, result);
  }
  if (kWrite) {
    hn::Store(Format::scale(x, inv_scale), db, buffer);
    std::memcpy(data, buffer, count * sizeof(Bits));
  }
#endif
}

template <class Format, bool kWrite>
HWY_INLINE void run(const void* args, void* const* tiles, std::size_t count,
                    std::size_t first, Result& result) {
  using Bits = typename Format::Bits;
  const typename Format::DB db;
  const std::size_t lanes = hn::Lanes(db);
  const UnscaleArgs& unscale = *static_cast<const UnscaleArgs*>(args);
  const auto inv_scale = static_cast<typename Format::Scale>(unscale.inv_scale);
  Bits* data = static_cast<Bits*>(tiles[0]);

  const std::size_t ahead = unscale.prefetch_bytes;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    Bits* block = data + i;
    if (ahead != 0) {
      // Prefetching beyond the array is harmless: it cannot fault.
      const auto* next = reinterpret_cast<const std::uint8_t*>(block) + ahead;
      for (std::size_t b = 0; b < 4 * lanes * sizeof(Bits); b += 64) {
        hwy::Prefetch(next + b);
      }
    }
    const auto x0 = hn::LoadU(db, block);
    const auto x1 = hn::LoadU(db, block + lanes);
    const auto x2 = hn::LoadU(db, block + 2 * lanes);
    const auto x3 = hn::LoadU(db, block + 3 * lanes);
    const auto bad =
        hn::Or(hn::Or(is_nonfinite<Format>(x0), is_nonfinite<Format>(x1)),
               hn::Or(is_nonfinite<Format>(x2), is_nonfinite<Format>(x3)));
    if (HWY_UNLIKELY(!hn::AllFalse(db, bad))) {
      flag_block<Bits>(block, 4 * lanes, Format::kExponent, first + i, result);
    }
    if (kWrite) {
      hn::StoreU(Format::scale(x0, inv_scale), db, block);
      hn::StoreU(Format::scale(x1, inv_scale), db, block + lanes);
      hn::StoreU(Format::scale(x2, inv_scale), db, block + 2 * lanes);
      hn::StoreU(Format::scale(x3, inv_scale), db, block + 3 * lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(db, data + i);
    if (HWY_UNLIKELY(!hn::AllFalse(db, is_nonfinite<Format>(x)))) {
      flag_block<Bits>(data + i, lanes, Format::kExponent, first + i, result);
    }
    if (kWrite) hn::StoreU(Format::scale(x, inv_scale), db, data + i);
  }
  if (i < count) {
    tail<Format, kWrite>(data + i, count - i, inv_scale, first + i, result);
  }
}

}  // namespace

#define SWAMP_UNSCALE_KERNELS(Format, suffix)                                  \
  void unscale_##suffix(const void* args, void* const* tiles,                  \
                        std::size_t count, std::size_t first,                  \
                        Result& result) {                                      \
    run<Format, true>(args, tiles, count, first, result);                      \
  }                                                                            \
  void check_##suffix(const void* args, void* const* tiles, std::size_t count, \
                      std::size_t first, Result& result) {                     \
    run<Format, false>(args, tiles, count, first, result);                     \
  }
SWAMP_UNSCALE_KERNELS(Float16, float16)
SWAMP_UNSCALE_KERNELS(BFloat16, bfloat16)
SWAMP_UNSCALE_KERNELS(Float32, float32)
SWAMP_UNSCALE_KERNELS(Float64, float64)
#undef SWAMP_UNSCALE_KERNELS

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
