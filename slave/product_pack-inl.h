// Packs lanes of a factor of a product in panels, in the order of the sums.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_PRODUCT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_PRODUCT_PACK_INL_H_
#undef SWAMP_SLAVE_PRODUCT_PACK_INL_H_
#else
#define SWAMP_SLAVE_PRODUCT_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "slave/batch-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_args.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// pack_floats() packs the terms of a source in the order of the sum. Terms that
// are far from each other are prefetched with all their lines.
template <class Format>
HWY_INLINE void pack_floats(const Source<Format>& x, std::size_t width,
                            float* out) {
  const std::size_t packed = for_terms(
      x, [&](auto d, std::size_t lane, std::size_t t, auto value) HWY_ATTR {
        hwy::Prefetch(x.at(lane, t + 2 * kTermsAhead));
        hn::StoreU(value, d, out + place_of(t, x.terms) * width + lane);
      });
  for (std::size_t t = 0; packed < width && t < x.terms; ++t) {
    float* const to = out + place_of(t, x.terms) * width;
    for (std::size_t i = packed; i < x.lanes; ++i) {
      to[i] = Format::widen(*x.at(i, t));
    }
    std::fill(to + x.lanes, to + width, 0.0f);
  }
}

// LeastExponent finds the least biased exponent of bfloat16 numbers that are
// not 0.
struct LeastExponent {
  using D = hn::ScalableTag<std::uint16_t>;
  hn::Vec<D> least;  // of magnitudes less 1: 0 becomes the largest number

  HWY_INLINE LeastExponent() : least(hn::Set(D(), std::uint16_t{0xffff})) {}
  HWY_INLINE void add(hn::Vec<D> numbers) {
    const D d;
    const auto magnitude = hn::And(numbers, hn::Set(d, std::uint16_t{0x7fff}));
    least = hn::Min(least, hn::Sub(magnitude, hn::Set(d, std::uint16_t{1})));
  }
  // exponent() is 255 if all were 0.
  HWY_INLINE std::uint32_t exponent() const {
    std::uint16_t lanes[hn::MaxLanes(D())];
    hn::StoreU(least, D(), lanes);
    const std::uint32_t magnitude =
        *std::min_element(std::begin(lanes), std::end(lanes)) + 1u;
    return magnitude > 0x7fff ? 0xff : magnitude >> 7;
  }
};

// Returns the smallest biased exponent of the numbers that are not 0.
HWY_INLINE std::uint32_t least_exponent(const std::uint16_t* numbers,
                                        std::size_t count) {
  const LeastExponent::D d;
  constexpr std::size_t kWidth = hn::MaxLanes(LeastExponent::D());
  LeastExponent least;
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    least.add(hn::LoadU(d, numbers + i));
  }
  std::uint16_t rest[kWidth] = {};
  std::memcpy(rest, numbers + i, (count - i) * sizeof rest[0]);
  least.add(hn::LoadU(d, rest));
  return least.exponent();
}

// pack_pairs() packs pairs of bfloat16 and returns the least biased exponent of
// those that are not 0.
HWY_INLINE std::uint32_t pack_pairs(const Source<BFloat16>& x,
                                    std::size_t width, std::uint32_t* out) {
  const std::size_t count = (x.terms + 1) / 2;
  const std::uint32_t missing = width == kProductLanes ? 0x80000000u : 0u;
  const auto pair = [&](std::size_t lane, std::size_t p) {
    const std::uint32_t high =
        2 * p + 1 < x.terms
            ? static_cast<std::uint32_t>(*x.at(lane, 2 * p + 1)) << 16
            : missing;
    return *x.at(lane, 2 * p) | high;
  };
  std::size_t packed = 0;
  if (x.lane_step == 1) {
    for (std::size_t p = 0; p < count; ++p) {
      const bool both = 2 * p + 1 < x.terms;
      hwy::Prefetch(x.at(0, 2 * p + kTermsAhead));
      hwy::Prefetch(x.at(0, 2 * p + kTermsAhead + 1));
      packed = for_lanes(x.lanes, [&](auto d, std::size_t lane) HWY_ATTR {
        const hn::RebindToUnsigned<decltype(d)> bits;
        const hn::Rebind<std::uint16_t, decltype(d)> d16;
        const auto half = [&](std::size_t term) HWY_ATTR {
          return hn::PromoteTo(bits, hn::LoadU(d16, x.at(lane, term)));
        };
        const auto high =
            both ? hn::ShiftLeft<16>(half(2 * p + 1)) : hn::Set(bits, missing);
        hn::StoreU(hn::Or(half(2 * p), high), bits, out + p * width + lane);
      });
    }
  } else if (x.term_step == 1) {
    packed = for_lanes(x.lanes, [&](auto d, std::size_t lane) HWY_ATTR {
      using D = decltype(d);
      const auto store = [&](std::size_t w, hn::Vec<D> word) HWY_ATTR {
        const hn::RebindToUnsigned<D> bits;
        hn::StoreU(hn::BitCast(bits, word), bits, out + w * width + lane);
      };
      for (std::size_t p = for_words(d, x, lane, store) / 2; p < count; ++p) {
        for (std::size_t i = lane; i < lane + hn::MaxLanes(D()); ++i) {
          out[p * width + i] = pair(i, p);
        }
      }
    });
  }
  for (std::size_t p = 0; packed < width && p < count; ++p) {
    for (std::size_t i = packed; i < width; ++i) {
      out[p * width + i] = i < x.lanes ? pair(i, p) : 0;
    }
  }
  return least_exponent(reinterpret_cast<const std::uint16_t*>(out),
                        2 * count * width);
}

// pack_panel() packs a source of `width` lanes at `panel` and returns its end.
template <class Format>
HWY_NOINLINE std::byte* pack_panel(const Source<Format>& x, std::size_t width,
                                   bool pairs, std::byte* panel) {
  auto& head = *reinterpret_cast<ProductPanel*>(panel);
  head = {};  // also what is reserved, which is put to main memory, too
  if constexpr (std::is_same<Format, BFloat16>::value) {
    if (pairs) {
      head.least_exponent =
          pack_pairs(x, width, reinterpret_cast<std::uint32_t*>(&head + 1));
      return panel + product_panel_bytes(x.terms, width, true);
    }
  }
  pack_floats(x, width, reinterpret_cast<float*>(&head + 1));
  return panel + product_panel_bytes(x.terms, width, false);
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_PRODUCT_PACK_INL_H_
