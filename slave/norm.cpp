// The norm kernels, compiled once per target by Highway.
#include <cstdint>
#include <cstring>
#include <utility>

#include "slave/kernel.h"
#include "slave/kernel_args.h"
#include "swamp/float_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/norm.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/nonfinite-inl.h"
#include "slave/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DD = hn::ScalableTag<double>;

// Pair is a vector of floats, widened.
struct Pair {
  hn::Vec<DD> low, high;
};

// A format unscales: one element, or the next two vectors of doubles. Those in
// one multiplication of a whole vector: lanes that nobody asked for would raise
// flags of their own (0 * inf).
template <class Stream>
HWY_INLINE Pair unscale_pair(const typename Stream::Element* at,
                             float inv_scale) {
  const DD dd;
  const hn::ScalableTag<float> df;
  const auto scale = hn::Set(df, inv_scale);
#if HWY_TARGET == HWY_SCALAR
  return {hn::PromoteTo(dd, hn::Mul(Stream::load(df, at), scale)),
          hn::PromoteTo(dd, hn::Mul(Stream::load(df, at + 1), scale))};
#else
  const hn::Half<decltype(df)> dh;
  const auto value = hn::Mul(Stream::load(df, at), scale);
  return {hn::PromoteTo(dd, hn::LowerHalf(dh, value)),
          hn::PromoteTo(dd, hn::UpperHalf(dh, value))};
#endif
}
struct Float16 : Float16Stream {
  using Bits = std::uint16_t;
  static constexpr Bits kExponent = 0x7c00u;
  static double one(Element x, float inv_scale) {
    return float16_to_float(x) * inv_scale;
  }
  static HWY_INLINE Pair pair(const Element* at, float inv_scale) {
    return unscale_pair<Float16Stream>(at, inv_scale);
  }
};
struct BFloat16 : BFloat16Stream {
  using Bits = std::uint16_t;
  static constexpr Bits kExponent = 0x7f80u;
  static double one(Element x, float inv_scale) {
    return bfloat16_to_float(x) * inv_scale;
  }
  static HWY_INLINE Pair pair(const Element* at, float inv_scale) {
    return unscale_pair<BFloat16Stream>(at, inv_scale);
  }
};
struct Float32 : Float32Stream {
  using Bits = std::uint32_t;
  static constexpr Bits kExponent = 0x7f800000u;
  static double one(Element x, float inv_scale) { return x * inv_scale; }
  static HWY_INLINE Pair pair(const Element* at, float inv_scale) {
    return unscale_pair<Float32Stream>(at, inv_scale);
  }
};
struct Float64 {
  using Element = double;
  using Bits = std::uint64_t;
  static constexpr Bits kExponent = 0x7ff0000000000000u;
  static double one(Element x, float inv_scale) {
    return x * static_cast<double>(inv_scale);
  }
  static HWY_INLINE Pair pair(const Element* at, float inv_scale) {
    const DD dd;
    const auto scale = hn::Set(dd, static_cast<double>(inv_scale));
    return {hn::Mul(hn::LoadU(dd, at), scale),
            hn::Mul(hn::LoadU(dd, at + hn::Lanes(dd)), scale)};
  }
};

// add_some() adds one by one: what lies before and behind whole rounds of the
// lanes.
template <class Format>
HWY_NOINLINE void add_some(const typename Format::Element* data,
                           std::size_t count, std::size_t first,
                           float inv_scale, double* lanes) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = Format::one(data[i], inv_scale);
    lanes[(first + i) % NormPartial::kLanes] += value * value;
  }
}

// add_square() may fuse where the value was a float, whose square is exact in
// double: the sum is rounded once either way.
template <class Format>
HWY_INLINE hn::Vec<DD> add_square(hn::Vec<DD> sum, hn::Vec<DD> value) {
  if (sizeof(typename Format::Element) < sizeof(double)) {
    return hn::MulAdd(value, value, sum);
  }
  return hn::Add(sum, hn::Mul(value, value));
}

// add_pair() adds the squares of the elements at `at` to two vectors of lanes.
template <class Format>
HWY_INLINE void add_pair(const typename Format::Element* at, float inv_scale,
                         hn::Vec<DD>& low, hn::Vec<DD>& high) {
  const Pair value = Format::pair(at, inv_scale);
  low = add_square<Format>(low, value.low);
  high = add_square<Format>(high, value.high);
}

// A sum waits for the one before it, so several grains are added side by side;
// four were no faster than two.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr std::size_t kSideBySide = 2;
#else
inline constexpr std::size_t kSideBySide = 1;
#endif
inline constexpr std::size_t kPairsOfGrain =
    NormPartial::kLanes / 2 / hn::MaxLanes(DD());

// prefetch() of what is far ahead goes to L2 only: L1 has forgotten it when it
// is wanted.
template <std::size_t kGrains>
HWY_INLINE void prefetch(const std::uint8_t* at) {
#if defined(__GNUC__)
  __builtin_prefetch(at, 0, kGrains == 1 ? 3 : 2);
#else
  hwy::Prefetch(at);
#endif
}

// add_rounds() adds whole rounds: 16 elements, the first of them for lane 0; of
// several grains at once, `distance` elements apart. Pair k is pair
// k % kPairsOfGrain of grain k / kPairsOfGrain. Unrolled by hand, because g++
// keeps an array in memory that it loops over.
template <class Format, std::size_t... kPairs>
HWY_INLINE void add_rounds(const typename Format::Element* data,
                           std::size_t count, std::size_t distance,
                           float inv_scale, std::size_t prefetch_bytes,
                           double* lanes, std::index_sequence<kPairs...>) {
  const DD dd;
  constexpr std::size_t kLanes = NormPartial::kLanes;
  constexpr std::size_t kStep = hn::MaxLanes(DD());
  constexpr std::size_t kLine = 64 / sizeof *data;
  constexpr std::size_t kTurn = kLine > kLanes ? kLine : kLanes;
  // Memory gives most when it is read straight on: of several grains the next
  // ones are brought, one behind the other.
  constexpr std::size_t kGrains = sizeof...(kPairs) / kPairsOfGrain;
  const std::size_t ahead = kGrains == 1 || prefetch_bytes == 0
                                ? prefetch_bytes
                                : kGrains * distance * sizeof *data;
  hn::Vec<DD> low[] = {hn::LoadU(dd, lanes + 2 * kPairs * kStep)...};
  hn::Vec<DD> high[] = {hn::LoadU(dd, lanes + (2 * kPairs + 1) * kStep)...};
  const auto round = [&](std::size_t i) HWY_ATTR {
    (add_pair<Format>(data + i + kPairs / kPairsOfGrain * distance +
                          2 * (kPairs % kPairsOfGrain) * kStep,
                      inv_scale, low[kPairs], high[kPairs]),
     ...);
  };
  std::size_t i = 0;
  for (; i + kTurn <= count; i += kTurn) {
    if (ahead != 0) {
      // Prefetching beyond the array is harmless: it cannot fault.
      const auto* next =
          reinterpret_cast<const std::uint8_t*>(data + i * kGrains) + ahead;
      for (std::size_t b = 0; b < kGrains * kTurn * sizeof *data; b += 64) {
        prefetch<kGrains>(next + b);
      }
    }
    for (std::size_t k = 0; k < kTurn; k += kLanes) round(i + k);
  }
  for (; i < count; i += kLanes) round(i);
  (hn::StoreU(low[kPairs], dd, lanes + 2 * kPairs * kStep), ...);
  (hn::StoreU(high[kPairs], dd, lanes + (2 * kPairs + 1) * kStep), ...);
}

// flag_all() goes through a tile again, to flag what is inf or nan.
template <class Format>
HWY_NOINLINE void flag_all(const void* tile, std::size_t count,
                           std::size_t first, Result& result) {
  using Bits = typename Format::Bits;
  const auto* data = static_cast<const Bits*>(tile);
  const std::size_t block = 4 * hn::Lanes(hn::ScalableTag<Bits>());
  std::size_t i = 0;
  for (; i + block <= count; i += block) {
    if (is_dirty(data + i, Format::kExponent)) {
      flag_block<Bits>(data + i, block, Format::kExponent, first + i, result);
    }
  }
  flag_block<Bits>(data + i, count - i, Format::kExponent, first + i, result);
}

// An element that is inf or nan leaves its lane so, whatever it is multiplied
// by: while all lanes are finite, nothing need be flagged.
HWY_INLINE bool all_finite(const double* lanes) {
  constexpr std::uint64_t kExponent = Float64::kExponent;
  bool finite = true;
  for (int lane = 0; lane < NormPartial::kLanes; ++lane) {
    std::uint64_t bits;
    std::memcpy(&bits, lanes + lane, sizeof bits);
    finite &= (bits & kExponent) != kExponent;
  }
  return finite;
}

// run_grain() adds a tile that lies in one grain.
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
  const auto* data =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  const std::size_t count = tile.count;
  const std::size_t first = tile.first;
  auto* partial = static_cast<NormPartial*>(tile.partial);
  const std::size_t grain = tile.grain_elements;
  if (grain == 0 || first % grain + count <= grain) {
    run_grain<Format>(data, count, first, inv_scale, tile.prefetch_bytes,
                      partial->lanes, result);
    return;
  }
  // The slave's tile begins with a grain and holds several.
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

SWAMP_DEFINE_KERNEL(norm_float16, norm<Float16>)
SWAMP_DEFINE_KERNEL(norm_bfloat16, norm<BFloat16>)
SWAMP_DEFINE_KERNEL(norm_float32, norm<Float32>)
SWAMP_DEFINE_KERNEL(norm_float64, norm<Float64>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
