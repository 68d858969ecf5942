// The norm kernels, compiled once per target by Highway: sums of squares in
// double, in 16 lanes by the index of the element, so that every vector width
// adds in the same order. Whether an element is inf or nan is read off the
// lanes afterwards; only then is the tile read again to flag it.
#include <cstdint>
#include <cstring>
#include <utility>

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"
#include "swamp/float_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/norm.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/batch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DD = hn::ScalableTag<double>;

// Pair is a vector of floats, widened.
struct Pair {
  hn::Vec<DD> low, high;
};

// unscale_one() is the value that is squared.
template <class Format>
double unscale_one(typename Format::Element x, float inv_scale) {
  const typename Format::Float value =
      Format::widen(x) * static_cast<typename Format::Float>(inv_scale);
  return value;
}

// unscale_pair() unscales the next two vectors of doubles, by one
// multiplication of a whole vector: lanes that are not used would raise
// floating-point flags of their own (0 * inf).
template <class Format>
HWY_INLINE Pair unscale_pair(const typename Format::Element* at,
                             float inv_scale) {
  const DD dd;
  const hn::ScalableTag<float> df;
  const auto scale = hn::Set(df, inv_scale);
#if HWY_TARGET == HWY_SCALAR
  return {hn::PromoteTo(dd, hn::Mul(Format::load(df, at), scale)),
          hn::PromoteTo(dd, hn::Mul(Format::load(df, at + 1), scale))};
#else
  const hn::Half<decltype(df)> dh;
  const auto value = hn::Mul(Format::load(df, at), scale);
  return {hn::PromoteTo(dd, hn::LowerHalf(dh, value)),
          hn::PromoteTo(dd, hn::UpperHalf(dh, value))};
#endif
}
template <>
HWY_INLINE Pair unscale_pair<Float64>(const double* at, float inv_scale) {
  const DD dd;
  const auto scale = hn::Set(dd, static_cast<double>(inv_scale));
  return {hn::Mul(hn::LoadU(dd, at), scale),
          hn::Mul(hn::LoadU(dd, at + hn::Lanes(dd)), scale)};
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// `low` is the even elements, and `high` the odd ones.
template <>
HWY_INLINE Pair unscale_pair<BFloat16>(const std::uint16_t* at,
                                       float inv_scale) {
  const DD dd;
  const hn::Rebind<float, DD> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto scale = hn::Set(df, inv_scale);
  const auto pairs = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(at));
  return {hn::PromoteTo(dd, hn::Mul(even_bfloat16(df, pairs), scale)),
          hn::PromoteTo(dd, hn::Mul(odd_bfloat16(df, pairs), scale))};
}
#endif

// load_lanes() loads the sums of the elements of a Pair, store_lanes() stores
// them.
template <class Format>
HWY_INLINE Pair load_lanes(const double* lanes) {
  const DD dd;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<Format, BFloat16>) {
    Pair pair;
    hn::LoadInterleaved2(dd, lanes, pair.low, pair.high);
    return pair;
  }
#endif
  return {hn::LoadU(dd, lanes), hn::LoadU(dd, lanes + hn::Lanes(dd))};
}
template <class Format>
HWY_INLINE void store_lanes(const Pair& pair, double* lanes) {
  const DD dd;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<Format, BFloat16>) {
    hn::StoreInterleaved2(pair.low, pair.high, dd, lanes);
    return;
  }
#endif
  hn::StoreU(pair.low, dd, lanes);
  hn::StoreU(pair.high, dd, lanes + hn::Lanes(dd));
}

// add_some() adds elements one by one: those before and after whole rounds of
// the lanes.
template <class Format>
HWY_NOINLINE void add_some(const typename Format::Element* data,
                           std::size_t count, std::size_t first,
                           float inv_scale, double* lanes) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = unscale_one<Format>(data[i], inv_scale);
    lanes[(first + i) % NormPartial::kLanes] += value * value;
  }
}

// add_square() may fuse if the value was a float, whose square is exact in
// double: the sum is rounded once either way.
template <class Format>
HWY_INLINE hn::Vec<DD> add_square(hn::Vec<DD> sum, hn::Vec<DD> value) {
  if (sizeof(typename Format::Element) < sizeof(double)) {
    return hn::MulAdd(value, value, sum);
  }
  return hn::Add(sum, hn::Mul(value, value));
}

// add_pair() adds the squares of the elements at `at` to their lanes.
template <class Format>
HWY_INLINE void add_pair(const typename Format::Element* at, float inv_scale,
                         Pair& sums) {
  const Pair value = unscale_pair<Format>(at, inv_scale);
  sums.low = add_square<Format>(sums.low, value.low);
  sums.high = add_square<Format>(sums.high, value.high);
}

// Each addition to a sum waits for the previous one, so several grains are
// added side by side. Four were no faster than two.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr std::size_t kSideBySide = 2;
#else
inline constexpr std::size_t kSideBySide = 1;
#endif
inline constexpr std::size_t kPairsOfGrain =
    NormPartial::kLanes / 2 / hn::MaxLanes(DD());

// prefetch_line() prefetches a line; of several grains into L2 only, because it
// would be evicted from L1 before use.
template <std::size_t kGrains>
HWY_INLINE void prefetch_line(const std::uint8_t* at) {
#if defined(__GNUC__)
  __builtin_prefetch(at, 0, kGrains == 1 ? 3 : 2);
#else
  hwy::Prefetch(at);
#endif
}

// add_rounds() adds whole rounds: 16 elements, the first of them for lane 0. It
// adds several grains at once, `distance` elements apart: pair k is pair
// k % kPairsOfGrain of grain k / kPairsOfGrain. Unrolled by hand, because g++
// keeps arrays in memory if they are accessed in a loop.
template <class Format, std::size_t... kPairs>
HWY_INLINE void add_rounds(const typename Format::Element* data,
                           std::size_t count, std::size_t distance,
                           float inv_scale, std::size_t prefetch_bytes,
                           double* lanes, std::index_sequence<kPairs...>) {
  constexpr std::size_t kLanes = NormPartial::kLanes;
  constexpr std::size_t kStep = hn::MaxLanes(DD());
  constexpr std::size_t kLine = 64 / sizeof *data;
  constexpr std::size_t kTurn = kLine > kLanes ? kLine : kLanes;
  // Memory is fastest when it is read sequentially: the grains after these are
  // prefetched one after another.
  constexpr std::size_t kGrains = sizeof...(kPairs) / kPairsOfGrain;
  const std::size_t ahead = kGrains == 1 || prefetch_bytes == 0
                                ? prefetch_bytes
                                : kGrains * distance * sizeof *data;
  Pair sums[] = {load_lanes<Format>(lanes + 2 * kPairs * kStep)...};
  const auto round = [&](std::size_t i) HWY_ATTR {
    (add_pair<Format>(data + i + kPairs / kPairsOfGrain * distance +
                          2 * (kPairs % kPairsOfGrain) * kStep,
                      inv_scale, sums[kPairs]),
     ...);
  };
  std::size_t i = 0;
  for (; i + kTurn <= count; i += kTurn) {
    if (ahead != 0) {
      // Prefetching beyond the array is harmless: it cannot fault.
      const auto* next =
          reinterpret_cast<const std::uint8_t*>(data + i * kGrains) + ahead;
      for (std::size_t b = 0; b < kGrains * kTurn * sizeof *data; b += 64) {
        prefetch_line<kGrains>(next + b);
      }
    }
    for (std::size_t k = 0; k < kTurn; k += kLanes) round(i + k);
  }
  for (; i < count; i += kLanes) round(i);
  (store_lanes<Format>(sums[kPairs], lanes + 2 * kPairs * kStep), ...);
}

// flag_all() reads a tile again, to flag inf and nan.
template <class Format>
HWY_NOINLINE void flag_all(const void* tile, std::size_t count,
                           std::size_t first, Result& result) {
  using Bits = typename Format::Bits;
  const auto* data = static_cast<const Bits*>(tile);
  const std::size_t i =
      check_batches<Bits>(data, count, Format::kNonfinite, first, 0, result);
  flag_nonfinite<Bits>(data + i, count - i, Format::kNonfinite, first + i,
                       result);
}

// all_finite() returns whether all lanes are finite. An element that is inf or
// nan makes its lane so, whatever inv_scale is: if all lanes are finite, there
// is nothing to flag.
HWY_INLINE bool all_finite(const double* lanes) {
  constexpr std::uint64_t kExponent = Float64::kNonfinite;
  bool finite = true;
  for (int lane = 0; lane < NormPartial::kLanes; ++lane) {
    std::uint64_t bits;
    std::memcpy(&bits, lanes + lane, sizeof bits);
    finite &= (bits & kExponent) != kExponent;
  }
  return finite;
}

// run_grain() adds elements of one grain.
template <class Format>
HWY_NOINLINE void run_grain(const typename Format::Element* data,
                            std::size_t count, std::size_t first,
                            float inv_scale, std::size_t prefetch_bytes,
                            double* lanes, Result& result) {
  constexpr std::size_t kLanes = NormPartial::kLanes;
  const std::size_t skip = (kLanes - first % kLanes) % kLanes;
  const std::size_t head = skip < count ? skip : count;
  const std::size_t rounds = (count - head) / kLanes * kLanes;
  const std::size_t tail = head + rounds;
  if (head != 0) add_some<Format>(data, head, first, inv_scale, lanes);
  if (rounds != 0) {
    add_rounds<Format>(data + head, rounds, 0, inv_scale, prefetch_bytes, lanes,
                       std::make_index_sequence<kPairsOfGrain>());
  }
  if (tail != count) {
    add_some<Format>(data + tail, count - tail, first + tail, inv_scale, lanes);
  }
  if (HWY_UNLIKELY(!all_finite(lanes))) {
    flag_all<Format>(data, count, first, result);
  }
}

template <class Format>
HWY_INLINE void norm(const void* args, const Tile& tile, Result& result) {
  const float inv_scale = static_cast<const NormArgs*>(args)->inv_scale;
  const auto* data = operand<typename Format::Element>(tile, 0);
  const std::size_t count = tile.count;
  const std::size_t first = tile.first;
  auto* partial = partial_result<NormPartial>(tile);
  const std::size_t grain = tile.grain_units;
  if (grain == 0 || first % grain + count <= grain) {
    run_grain<Format>(data, count, first, inv_scale, tile.prefetch_bytes,
                      partial->lanes, result);
    return;
  }
  // The tile begins with a grain and holds several.
  std::size_t i = 0;
  for (; i + kSideBySide * grain <= count; i += kSideBySide * grain) {
    add_rounds<Format>(data + i, grain, grain, inv_scale, tile.prefetch_bytes,
                       partial->lanes,
                       std::make_index_sequence<kSideBySide * kPairsOfGrain>());
    for (std::size_t g = 0; g < kSideBySide; ++g, ++partial) {
      if (HWY_LIKELY(all_finite(partial->lanes))) continue;
      flag_all<Format>(data + i + g * grain, grain, first + i + g * grain,
                       result);
    }
  }
  for (; i < count; i += grain, ++partial) {
    const std::size_t left = count - i < grain ? count - i : grain;
    run_grain<Format>(data + i, left, first + i, inv_scale, tile.prefetch_bytes,
                      partial->lanes, result);
  }
}

}  // namespace

SWAMP_KERNELS(norm, kGradients, norm<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
