// The norm kernels, compiled once per target by Highway.
#include "slave/norm.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "swamp/float_formats.h"
#include "swamp/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/norm.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/nonfinite-inl.h"
#include "slave/streams-inl.h"

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

// add_pair() adds the squares of the elements at `at` to two vectors of lanes.
template <class Format>
HWY_INLINE void add_pair(const typename Format::Element* at, float inv_scale,
                         hn::Vec<DD>& low, hn::Vec<DD>& high) {
  const Pair value = Format::pair(at, inv_scale);
  low = hn::Add(low, hn::Mul(value.low, value.low));
  high = hn::Add(high, hn::Mul(value.high, value.high));
}

// add_rounds() adds whole rounds: 16 elements, the first of them for lane 0. It
// is unrolled by hand, because g++ keeps an array in memory that it loops over.
template <class Format, std::size_t... kPairs>
HWY_INLINE void add_rounds(const typename Format::Element* data,
                           std::size_t count, const NormArgs& args,
                           double* lanes, std::index_sequence<kPairs...>) {
  const DD dd;
  constexpr std::size_t kLanes = NormPartial::kLanes;
  constexpr std::size_t kStep = hn::MaxLanes(DD());
  const float inv_scale = args.inv_scale;
  const std::size_t ahead = args.prefetch_bytes;
  hn::Vec<DD> low[] = {hn::LoadU(dd, lanes + 2 * kPairs * kStep)...};
  hn::Vec<DD> high[] = {hn::LoadU(dd, lanes + (2 * kPairs + 1) * kStep)...};
  for (std::size_t i = 0; i < count; i += kLanes) {
    if (ahead != 0) {
      // Prefetching beyond the array is harmless: it cannot fault.
      const auto* next = reinterpret_cast<const std::uint8_t*>(data + i);
      for (std::size_t b = 0; b < kLanes * sizeof *data; b += 64) {
        hwy::Prefetch(next + ahead + b);
      }
    }
    (add_pair<Format>(data + i + 2 * kPairs * kStep, inv_scale, low[kPairs],
                      high[kPairs]),
     ...);
  }
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

template <class Format>
HWY_INLINE void run(const void* args, void* const* tiles, std::size_t count,
                    std::size_t first, Result& result) {
  constexpr std::size_t kLanes = NormPartial::kLanes;
  const NormArgs& norm = *static_cast<const NormArgs*>(args);
  const auto* data = static_cast<const typename Format::Element*>(tiles[0]);
  double* lanes = static_cast<NormPartial*>(result.partial)->lanes;

  const std::size_t skip = (kLanes - first % kLanes) % kLanes;
  const std::size_t head = skip < count ? skip : count;
  const std::size_t rounds = (count - head) / kLanes * kLanes;
  const std::size_t tail = head + rounds;
  add_some<Format>(data, head, first, norm.inv_scale, lanes);
  if (rounds != 0) {
    using Pairs = std::make_index_sequence<kLanes / 2 / hn::MaxLanes(DD())>;
    add_rounds<Format>(data + head, rounds, norm, lanes, Pairs());
  }
  add_some<Format>(data + tail, count - tail, first + tail, norm.inv_scale,
                   lanes);
  if (HWY_UNLIKELY(!all_finite(lanes))) {
    flag_all<Format>(data, count, first, result);
  }
}

}  // namespace

#define SWAMP_NORM_KERNEL(Format, suffix)                                     \
  void norm_##suffix(const void* args, void* const* tiles, std::size_t count, \
                     std::size_t first, Result& result) {                     \
    run<Format>(args, tiles, count, first, result);                           \
  }
SWAMP_NORM_KERNEL(Float16, float16)
SWAMP_NORM_KERNEL(BFloat16, bfloat16)
SWAMP_NORM_KERNEL(Float32, float32)
SWAMP_NORM_KERNEL(Float64, float64)
#undef SWAMP_NORM_KERNEL

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
