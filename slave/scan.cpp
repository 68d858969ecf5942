// The scan kernels, compiled once per target by Highway. Only integers are
// compared, so that every target and float environment gives the same bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/scan.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/batch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// Keys have the order of the values: a key is the element's bits, inverted
// below the sign if it is negative. Finite elements have -kInfinity <= key <
// kInfinity.
template <class Format>
struct Keys {
  using Key = std::make_signed_t<typename Format::Bits>;
  static constexpr FloatFormat kFormat = Format::kFormat;
  static constexpr Key kInfinity = static_cast<Key>(kFormat.infinity());
  static constexpr Key kNan = static_cast<Key>(kFormat.lowest_nan());
  static constexpr Key kMagnitude = std::numeric_limits<Key>::max();
};

// double_key() widens a key. It is exact, because the parts of an element are
// small integers and the double is never subnormal.
template <class F>
std::int64_t double_key(typename F::Key key) {
  if constexpr (sizeof key == sizeof(std::int64_t)) {
    return key;
  } else {
    constexpr int kMantissaBits = static_cast<int>(F::kFormat.mantissa_bits);
    const std::int64_t wide = key;
    const std::int64_t magnitude = wide < 0 ? ~wide : wide;
    const std::int64_t unit = std::int64_t{1} << kMantissaBits;
    const std::int64_t exponent = magnitude / unit;
    const std::int64_t mantissa = magnitude % unit + (exponent != 0 ? unit : 0);
    const int power = static_cast<int>(std::max<std::int64_t>(exponent, 1)) -
                      F::kFormat.bias();
    const double value =
        std::ldexp(static_cast<double>(mantissa), power - kMantissaBits);
    return wide < 0 ? ~order_key(value) : order_key(value);
  }
}

// Tally is what was found in a tile so far.
template <class F>
struct Tally {
  typename F::Key low = F::kInfinity - 1;  // the highest finite key
  typename F::Key high = -F::kInfinity;
  std::uint64_t inf_count = 0;
  std::uint64_t nan_count = 0;
  std::uint64_t first_nonfinite = 0;
};

// tally_some() counts elements one by one: in batches with inf or nan, and
// after the whole batches.
template <class F>
HWY_NOINLINE void tally_some(const typename F::Key* data, std::size_t count,
                             std::uint64_t first, Tally<F>& tally) {
  for (std::size_t i = 0; i < count; ++i) {
    using Key = typename F::Key;
    const Key bits = data[i];
    const Key magnitude = static_cast<Key>(bits & F::kMagnitude);
    if (magnitude >= F::kInfinity) {
      if (tally.inf_count + tally.nan_count == 0) {
        tally.first_nonfinite = first + i;
      }
      ++(magnitude >= F::kNan ? tally.nan_count : tally.inf_count);
    } else {
      const Key key = bits < 0 ? static_cast<Key>(~magnitude) : bits;
      tally.low = std::min(tally.low, key);
      tally.high = std::max(tally.high, key);
    }
  }
}

template <class Format>
HWY_INLINE void scan(const void*, const Tile& tile, Result& result) {
  using F = Keys<Format>;
  using Key = typename F::Key;
  const hn::ScalableTag<Key> d;
  const std::size_t lanes = hn::Lanes(d);
  const Key* const data = operand<Key>(tile, 0);
  const std::size_t count = tile.count;
  const std::size_t first = tile.first;
  const auto magnitude = hn::Set(d, F::kMagnitude);
  const auto highest = hn::Set(d, static_cast<Key>(F::kInfinity - 1));
  const auto lowest = hn::Set(d, static_cast<Key>(-F::kInfinity));
  const auto key_at = [&](const Key* at) HWY_ATTR {
    const auto bits = hn::LoadU(d, at);
    return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), magnitude));
  };

  Tally<F> tally;
  auto low = highest;
  auto high = lowest;
  // Whole batches.
  const std::size_t i = for_each_batch(
      data, count, tile.prefetch_bytes, [&](std::size_t at) HWY_ATTR {
        const Key* batch = data + at;
        const auto k0 = key_at(batch);
        const auto k1 = key_at(batch + lanes);
        const auto k2 = key_at(batch + 2 * lanes);
        const auto k3 = key_at(batch + 3 * lanes);
        const auto batch_low = hn::Min(hn::Min(k0, k1), hn::Min(k2, k3));
        const auto batch_high = hn::Max(hn::Max(k0, k1), hn::Max(k2, k3));
        const auto bad =
            hn::Or(hn::Lt(batch_low, lowest), hn::Gt(batch_high, highest));
        if (HWY_UNLIKELY(!hn::AllFalse(d, bad))) {
          tally_some<F>(batch, 4 * lanes, first + at, tally);
        } else {
          low = hn::Min(low, batch_low);
          high = hn::Max(high, batch_high);
        }
      });
  // The rest.
  tally_some<F>(data + i, count - i, first + i, tally);

  HWY_ALIGN Key lows[hn::MaxLanes(d)];
  HWY_ALIGN Key highs[hn::MaxLanes(d)];
  hn::Store(low, d, lows);
  hn::Store(high, d, highs);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    tally.low = std::min(tally.low, lows[lane]);
    tally.high = std::max(tally.high, highs[lane]);
  }
  const std::uint64_t flagged = tally.inf_count + tally.nan_count;
  if (flagged != 0) result.flag(tally.first_nonfinite, flagged);
  partial_result<ScanPartial>(tile)->add(
      {tally.inf_count, tally.nan_count, count - flagged, tally.first_nonfinite,
       double_key<F>(tally.low), double_key<F>(tally.high)});
}

}  // namespace

SWAMP_KERNELS(scan, kGradients, scan<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
