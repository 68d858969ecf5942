// The lanes of a matrix whose terms are consecutive, as vectors of one term of
// many lanes, per target. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_TRANSPOSE_INL_H_
#undef SWAMP_SLAVE_TRANSPOSE_INL_H_
#else
#define SWAMP_SLAVE_TRANSPOSE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slave/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Source is a part of a matrix. Element (lane, term) is
// data[lane * lane_step + term * term_step].
template <class Format>
struct Source {
  using Element = typename Format::Element;

  const Element* data;
  std::int64_t lane_step, term_step;
  std::size_t lanes, terms;

  const Element* at(std::size_t lane, std::size_t term) const {
    return data + static_cast<std::int64_t>(lane) * lane_step +
           static_cast<std::int64_t>(term) * term_step;
  }
};

// place_of() returns where term t comes in the order of a sum (product_args.h).
HWY_INLINE std::size_t place_of(std::size_t t, std::size_t terms) {
  return (t ^ 1) < terms ? t ^ 1 : t;
}

// A word is 32 bits: a float, or a pair of 16-bit elements.
template <class Format>
constexpr std::size_t kWordTerms = 4 / sizeof(typename Format::Element);

#if HWY_TARGET != HWY_SCALAR
// transposed_blocks() transposes each 4 x 4 words that are a block of 128 bits
// of the four vectors.
template <class D>
HWY_INLINE void transposed_blocks(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c,
                                  hn::Vec<D> e, hn::Vec<D>* words) {
  const hn::Repartition<double, D> dd;
  const auto low_ab = hn::BitCast(dd, hn::InterleaveLower(d, a, b));
  const auto low_ce = hn::BitCast(dd, hn::InterleaveLower(d, c, e));
  const auto up_ab = hn::BitCast(dd, hn::InterleaveUpper(d, a, b));
  const auto up_ce = hn::BitCast(dd, hn::InterleaveUpper(d, c, e));
  words[0] = hn::BitCast(d, hn::InterleaveLower(dd, low_ab, low_ce));
  words[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low_ab, low_ce));
  words[2] = hn::BitCast(d, hn::InterleaveLower(dd, up_ab, up_ce));
  words[3] = hn::BitCast(d, hn::InterleaveUpper(dd, up_ab, up_ce));
}

// transposed_words() sets words[i] to word w + i of as many lanes as `d` has.
// The terms must be consecutive.
template <class D, class Format>
HWY_INLINE void transposed_words(D d, const Source<Format>& x, std::size_t lane,
                                 std::size_t w, hn::Vec<D> (&words)[4]) {
  constexpr std::size_t kWidth = hn::MaxLanes(D());
  const hn::RebindToSigned<D> di;
  const auto* const from =
      reinterpret_cast<const std::byte*>(x.at(lane, w * kWordTerms<Format>));
  const auto step = x.lane_step * static_cast<std::int64_t>(sizeof(*x.data));
  const auto load = [&](std::size_t i) HWY_ATTR {
    return hn::LoadDup128(d, reinterpret_cast<const float*>(
                                 from + static_cast<std::int64_t>(i) * step));
  };
  // Block L of vector g is four words of lane 4 L + g.
  const auto lanes_of = [&](std::size_t g) HWY_ATTR {
    auto lanes = load(g);
    for (std::size_t i = 4; i < kWidth; i += 4) {
      const auto before =
          hn::Lt(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(i)));
      lanes = hn::IfThenElse(hn::RebindMask(d, before), lanes, load(i + g));
    }
    return lanes;
  };
  transposed_blocks(d, lanes_of(0), lanes_of(1), lanes_of(2), lanes_of(3),
                    words);
}
#endif

#if HWY_TARGET == HWY_AVX3
// transposed_lines() sets words[i] to word w + i of 16 lanes. It reads half a
// line of each lane at once, because lines of all lanes may evict each
// other from L1.
template <class Format>
HWY_INLINE void transposed_lines(const Source<Format>& x, std::size_t lane,
                                 std::size_t w,
                                 hn::Vec<hn::ScalableTag<float>> (&words)[8]) {
  const hn::ScalableTag<float> df;
  using VF = hn::Vec<decltype(df)>;
  const hn::Half<decltype(df)> half;
  // Of the lanes i and 8 + i.
  const auto load = [&](std::size_t i) HWY_ATTR {
    const auto words_of_lane = [&](std::size_t l) HWY_ATTR {
      return hn::LoadU(half, reinterpret_cast<const float*>(
                                 x.at(lane + l, w * kWordTerms<Format>)));
    };
    return hn::Combine(df, words_of_lane(8 + i), words_of_lane(i));
  };
  // Even blocks have words 0 to 3, odd blocks 4 to 7.
  VF first[4], second[4];  // of the lanes 0 to 3 and 4 to 7 of each eight
  transposed_blocks(df, load(0), load(1), load(2), load(3), first);
  transposed_blocks(df, load(4), load(5), load(6), load(7), second);
  for (std::size_t i = 0; i < 4; ++i) {
    words[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(second[i]), first[i]);
    words[4 + i] =
        hn::OddEvenBlocks(second[i], hn::SwapAdjacentBlocks(first[i]));
  }
}
#endif

// for_words() is for a source whose terms are consecutive. It calls
// store(w, vector) with word w of as many lanes as `d` has, for groups of four
// words, and returns the number of terms in them.
template <class D, class Format, class Store>
HWY_INLINE std::size_t for_words(D d, const Source<Format>& x, std::size_t lane,
                                 const Store& store) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)x, (void)lane, (void)store;
  return 0;
#else
  const std::size_t words = x.terms / kWordTerms<Format> / 4 * 4;
  std::size_t w = 0;
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) {
    for (; w + 8 <= words; w += 8) {
      hn::Vec<D> word[8];
      transposed_lines(x, lane, w, word);
      for (std::size_t i = 0; i < 8; ++i) store(w + i, word[i]);
    }
  }
#endif
  for (; w < words; w += 4) {
    hn::Vec<D> word[4];
    transposed_words(d, x, lane, w, word);
    for (std::size_t i = 0; i < 4; ++i) store(w + i, word[i]);
  }
  return words * kWordTerms<Format>;
#endif
}

// for_lanes() calls visit(d, lane) for groups of lanes that are as many as `d`
// has: vectors first, then groups of eight and of four; the last one may
// overlap the one before it. It returns the lanes visited: all, or none of
// fewer than four.
template <class Visit>
HWY_INLINE std::size_t for_lanes(std::size_t lanes, const Visit& visit) {
  const hn::ScalableTag<float> df;
  constexpr std::size_t kWidth = hn::MaxLanes(df);
  const hn::CappedTag<float, 4> d4;
  std::size_t lane = 0;
  if (kWidth < 4) return 0;
  for (; lane + kWidth <= lanes; lane += kWidth) visit(df, lane);
  if constexpr (kWidth > 8) {
    const hn::CappedTag<float, 8> d8;
    for (; lane + 8 <= lanes; lane += 8) visit(d8, lane);
  }
  for (; lane + 4 <= lanes; lane += 4) visit(d4, lane);
  if (lane == lanes || lanes < 4) return lane;
  visit(d4, lanes - 4);
  return lanes;
}

// widen_half() is one of the two terms in words of a 16-bit format: the odd one
// is the upper half of the bits, except on big-endian CPUs.
template <class Format, class D>
HWY_INLINE hn::Vec<D> widen_half(D d, hn::Vec<hn::RebindToUnsigned<D>> word,
                                 bool odd) {
  const bool upper = odd == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  if constexpr (std::is_same<Format, BFloat16>::value) {
    return upper ? odd_bfloat16(d, word) : even_bfloat16(d, word);
  } else {
    const hn::Rebind<std::uint16_t, D> d16;
    return widen_float16(
        d, hn::TruncateTo(d16, upper ? hn::ShiftRight<16>(word) : word));
  }
}

// The number of terms of a transposed matrix that are prefetched, because they
// are far from each other.
inline constexpr std::size_t kTermsAhead = 8;

// for_terms() calls visit(d, lane, term, vector) with the floats of all terms,
// of groups of lanes as for_lanes(), and returns the number of lanes visited:
// none if neither lanes nor terms are neighbours in memory.
template <class Format, class Visit>
HWY_INLINE std::size_t for_terms(const Source<Format>& x, const Visit& visit,
                                 std::size_t ahead = kTermsAhead) {
  std::size_t visited = 0;
  if (x.lane_step == 1) {
    for (std::size_t t = 0; t < x.terms; ++t) {
      hwy::Prefetch(x.at(0, t + ahead));
      visited = for_lanes(x.lanes, [&](auto d, std::size_t lane) HWY_ATTR {
        visit(d, lane, t, Format::load(d, x.at(lane, t)));
      });
    }
  } else if (x.term_step == 1) {
    visited = for_lanes(x.lanes, [&](auto d, std::size_t lane) HWY_ATTR {
      using D = decltype(d);
      const auto word = [&](std::size_t w, hn::Vec<D> value) HWY_ATTR {
        if constexpr (sizeof(*x.data) == sizeof(float)) {
          visit(d, lane, w, value);
        } else {
          const auto pair = hn::BitCast(hn::RebindToUnsigned<D>(), value);
          visit(d, lane, 2 * w, widen_half<Format>(d, pair, false));
          visit(d, lane, 2 * w + 1, widen_half<Format>(d, pair, true));
        }
      };
      for (std::size_t t = for_words(d, x, lane, word); t < x.terms; ++t) {
        HWY_ALIGN float one[hn::MaxLanes(D())];
        for (std::size_t i = 0; i < hn::MaxLanes(D()); ++i) {
          one[i] = Format::widen(*x.at(lane + i, t));
        }
        visit(d, lane, t, hn::Load(d, one));
      }
    });
  }
  return visited;
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_TRANSPOSE_INL_H_
