// Sums of packed words of both factors of a product, a tile of rows and a panel
// of columns at a time, and how they are rounded to the result. Included once
// per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_PRODUCT_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_PRODUCT_SUMS_INL_H_
#undef SWAMP_SLAVE_PRODUCT_SUMS_INL_H_
#else
#define SWAMP_SLAVE_PRODUCT_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_args.h"
#include "slave/product_tile-inl.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
constexpr std::size_t kLanes = hn::MaxLanes(DF());

// A tile has kRows rows and kVectors vectors of sums in registers.
constexpr std::size_t kVectors = kLanes * 2 <= kProductLanes ? 2 : 1;
constexpr std::size_t kRows = kTileRows;
static_assert(kRows <= kMaxProductRows);

// Whether operands of a format may be packed as pairs.
template <class Format>
inline constexpr bool kMayBePairs =
    HWY_TARGET == HWY_AVX3&& std::is_same<Format, BFloat16>::value;

// A way adds one packed word of a and b to the sums: a term, or a pair.
using Floats = ByFma;
#if HWY_TARGET == HWY_AVX3
struct PairsByFma : ByFma {
  static HWY_INLINE VF add(VF a, VF b, VF sum) {
    const DF df;
    const DU du;
    const auto x = hn::BitCast(du, a);
    const auto y = hn::BitCast(du, b);
    sum = exact_fma(df, odd_bfloat16(df, x), odd_bfloat16(df, y), sum);
    return exact_fma(df, even_bfloat16(df, x), even_bfloat16(df, y), sum);
  }
};
struct PairsByDot : ByFma {
  static HWY_INLINE VF add(VF a, VF b, VF sum) {
    // The intrinsic is not part of this target.
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Target is where a tile goes: rows of sums, or of the result.
template <class Format>
struct Target {
  typename Format::Element* data;
  std::size_t row;  // step
  bool non_temporal = false;

  HWY_INLINE Target after(std::size_t rows) const {
    return {data == nullptr ? nullptr : data + rows * row, row, non_temporal};
  }
};
using Sums = Target<Float32>;

// Packed is rows of a in a sliver: word t of row r is words[t * step + r]. With
// each word a tile prefetches that of the rows after it, `ahead` floats away.
// kFloats and kPairs tell which words there may be.
template <class Format>
struct Packed {
  static constexpr std::size_t kAtOnce = 1;
  static constexpr bool kFloats = true, kPairs = kMayBePairs<Format>;
  std::uint32_t least_exponent;  // of a ProductPanel
  const float* words;
  std::size_t step, ahead;

  HWY_INLINE Packed after(std::size_t rows) const {
    return {least_exponent, words + rows, step, ahead};
  }
  HWY_INLINE float word(std::size_t row, std::size_t t) const {
    if (row == 0) hwy::Prefetch(words + t * step + ahead);
    return words[t * step + row];
  }
};

// TermsInPlace is rows of a gathered a whose terms are neighbours in memory:
// two words of row r, from an even t on, are at rows[r] + places[t / 2]. A pair
// of bfloat16 is a word in memory; of two floats the second comes first.
template <class Format>
struct TermsInPlace {
  static constexpr std::size_t kAtOnce = 2;
  static constexpr bool kPairs = kMayBePairs<Format>, kFloats = !kPairs;
  std::uint32_t least_exponent;
  // Read again for each two words: addresses that stay would leave general
  // registers for vector registers, and their way back takes the time of
  // multiply-adds.
  const std::byte* const volatile* rows;
  const std::size_t* places;

  HWY_INLINE TermsInPlace after(std::size_t count) const {
    return {least_exponent, rows + count, places};
  }
  HWY_INLINE auto word(std::size_t row, std::size_t t) const {
    return [at = rows[row] + places[t / 2]](auto k) HWY_ATTR {
      float word;
      std::memcpy(&word, at + (kPairs ? k : 1 - k) * sizeof word, sizeof word);
      return word;
    };
  }
};

// WordsInPlace reads rows of a gathered a whose rows and terms are not
// neighbours in memory: word t of row r is rows[r][places[t]].
struct WordsInPlace {
  static constexpr std::size_t kAtOnce = 1;
  static constexpr bool kFloats = true, kPairs = false;
  std::uint32_t least_exponent;       // not used
  const float* const volatile* rows;  // as those of TermsInPlace
  const std::size_t* places;

  HWY_INLINE WordsInPlace after(std::size_t count) const {
    return {least_exponent, rows + count, places};
  }
  HWY_INLINE float word(std::size_t row, std::size_t t) const {
    return rows[row][places[t]];
  }
};

// RowsInPlace is rows of a gathered a that are neighbours in memory: word t of
// row r is first[places[t] + r]. The rows of the next tile, which may be in
// lines of main memory that no other tile has read, are prefetched into L2.
struct RowsInPlace {
  static constexpr std::size_t kAtOnce = 1;
  static constexpr bool kFloats = true, kPairs = false;
  static constexpr std::size_t kWordsAhead = 8;  // also of `places`
  std::uint32_t least_exponent;                  // not used
  const float* first;
  const std::size_t* places;

  HWY_INLINE RowsInPlace after(std::size_t rows) const {
    return {least_exponent, first + rows, places};
  }
  HWY_INLINE float word(std::size_t row, std::size_t t) const {
    if (row == 0) hwy::Prefetch(first + places[t + kWordsAhead]);
    if (row == 1) __builtin_prefetch(first + places[t] + 2 * kRows - 1, 0, 2);
    return first[places[t] + row];
  }
};

// Ahead is what a tile prefetches with each word: `step` bytes of the next
// panel of b, from `panel` on. The rows of a slave are too short for the CPU's
// own prefetches to keep up.
struct Ahead {
  const std::byte* panel;
  std::size_t step;
};

// tile() adds `terms` words to the sums `from`, which are 0 if its data are
// null, of kHeight rows and a whole panel.
template <class Way, std::size_t kHeight, class Left, class Format>
HWY_NOINLINE void tile(const Left& a, const Ahead& ahead, const float* b,
                       std::size_t terms, const Sums& from,
                       const Target<Format>& to) {
  const DF df;
  const hn::Rebind<typename Format::Element, DF> d;
  for (std::size_t i = 0; i < kProductLanes; i += kVectors * kLanes) {
    product_tile<Way, Left::kAtOnce>(
        [&](auto row, std::size_t t) HWY_ATTR {
          if (row < Left::kAtOnce) {
            __builtin_prefetch(ahead.panel + (t + row) * ahead.step, 0, 2);
          }
          return a.word(row, t);
        },
        b + i, kProductLanes, terms,
        [&](auto row, auto v) HWY_ATTR {
          return from.data == nullptr
                     ? hn::Zero(df)
                     : hn::LoadU(df,
                                 from.data + row * from.row + i + v * kLanes);
        },
        [&](auto row, auto v, VF sum) HWY_ATTR {
          const auto value = Format::narrow_number(df, nan_to_quiet(sum));
          auto* const at = to.data + row * to.row + i + v * kLanes;
          if (kHasNonTemporalStores && to.non_temporal) {
            hn::Stream(value, d, at);
          } else {
            hn::StoreU(value, d, at);
          }
        },
        std::make_index_sequence<kHeight>(),
        std::make_index_sequence<kVectors>());
  }
}

// Computes tiles of `height` rows: kRows, or a power of two up to 8.
template <class Way, class Left, class Format>
HWY_INLINE void tiles(std::size_t height, const Left& a, const Ahead& ahead,
                      const float* b, std::size_t terms, const Sums& from,
                      const Target<Format>& to) {
  constexpr std::size_t kMost = kRows >= 8 ? 8 : kRows >= 4 ? 4 : 2;
  if (height == kRows) {
    return tile<Way, kRows>(a, ahead, b, terms, from, to);
  }
  for (std::size_t r = 0; r < height; r += kMost) {
    const std::size_t rows = std::min(kMost, height);
    constexpr std::size_t kFour = std::min<std::size_t>(kMost, 4);
    const auto one = rows == 8   ? tile<Way, kMost, Left, Format>
                     : rows == 4 ? tile<Way, kFour, Left, Format>
                     : rows == 2 ? tile<Way, 2, Left, Format>
                                 : tile<Way, 1, Left, Format>;
    one(a.after(r), ahead, b, terms, from.after(r), to.after(r));
  }
}

// sliver_rows() is the rows of the next sliver when `left` are left.
HWY_INLINE std::size_t sliver_rows(std::size_t left) {
  if (left >= kRows) return kRows;
  std::size_t rows = 8;
  while (rows > left) rows /= 2;
  return rows;
}

// can_use_dot() returns whether the instruction has the bits of fma(): it
// flushes subnormals, so no operand, sum or partial sum may be one. Every
// product is a multiple of 2^(Ea + Eb - 268).
HWY_INLINE bool can_use_dot(std::uint32_t a, std::uint32_t b) {
  return a != 0 && b != 0 && a + b >= 142;
}

// has_small() returns whether any sum, other than 0, is so small that it is not
// certain to be a multiple of 2^-126.
HWY_INLINE bool has_small(const Sums& sums, std::size_t rows) {
  const DU du;
  auto least = hn::Set(du, 0xffffffffu);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto* row =
        reinterpret_cast<const std::uint32_t*>(sums.data + r * sums.row);
    for (std::size_t i = 0; i < kProductLanes; i += kLanes) {
      const auto magnitude =
          hn::And(hn::LoadU(du, row + i), hn::Set(du, 0x7fffffffu));
      least = hn::Min(least, hn::Sub(magnitude, hn::Set(du, 1)));
    }
  }
  const auto smallest = hn::Set(du, 24u << 23);
  return !hn::AllFalse(du, hn::Ne(hn::Min(least, smallest), smallest));
}

HWY_INLINE const float* words_of(const std::byte* panel) {
  return reinterpret_cast<const float*>(panel + sizeof(ProductPanel));
}

HWY_INLINE std::uint32_t exponent_of(const std::byte* panel) {
  return reinterpret_cast<const ProductPanel*>(panel)->least_exponent;
}

// add_words() adds the words of `terms` terms to one tile. The panel of b that
// the words are of has the least exponent.
template <class Left, class Format>
HWY_INLINE void add_words(std::size_t height, const Left& a, const Ahead& ahead,
                          const std::byte* panel, const float* b,
                          std::size_t terms, bool pairs, const Sums& from,
                          const Target<Format>& to) {
  (void)panel;
  if constexpr (Left::kFloats) {
    if (!Left::kPairs || !pairs) {
      return tiles<Floats>(height, a, ahead, b, terms, from, to);
    }
  }
#if HWY_TARGET == HWY_AVX3
  if constexpr (Left::kPairs) {
    terms = (terms + 1) / 2;
    if (can_use_dot(a.least_exponent, exponent_of(panel)) &&
        (from.data == nullptr || !has_small(from, height))) {
      tiles<PairsByDot>(height, a, ahead, b, terms, from, to);
    } else {
      tiles<PairsByFma>(height, a, ahead, b, terms, from, to);
    }
  }
#endif
}

// store_first() stores the first `count` lanes and writes nothing else.
template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> value, std::size_t count,
                            hn::TFromD<D>* to) {
  if (count == hn::MaxLanes(D())) return hn::StoreU(value, d, to);
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#else
  hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::StoreU(value, d, lanes);
  for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

// Factors of the rows and columns of a result; null: none.
struct Factors {
  const float* rows;
  std::size_t row_step;
  const float* columns;
};

// finish() rounds at most kMaxProductRows rows of sums to the result. If the
// elements of its columns are neighbours, it is stored column by column: the
// lines of memory of all columns may evict each other from L1. Inlined: with
// few terms a call would take half as long as the product.
template <class Format>
HWY_INLINE void finish(const ProductArgs& args, const Sums& sums,
                       std::size_t rows, std::size_t columns,
                       const typename Format::Element* self,
                       const ProductSteps& self_at,
                       typename Format::Element* out,
                       const ProductSteps& out_at, const Factors& factors) {
  using Element = typename Format::Element;
  const DF df;
  const hn::Rebind<Element, DF> d;
  const VF alpha = hn::Set(df, args.alpha), beta = hn::Set(df, args.beta);
  const bool by_column = out_at.row == 1 && out_at.column != 1;
  // Rows, rounded up to whole vectors, in which a column is stored.
  constexpr std::size_t kAll = (kMaxProductRows + kLanes - 1) / kLanes * kLanes;
  float all[kAll][kProductLanes];
  for (std::size_t r = rows; by_column && r % kLanes != 0; ++r) {
    std::fill(all[r], all[r] + kProductLanes, 0.0f);
  }
  Element* const first = out;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const sum = sums.data + r * sums.row;
    for (std::size_t i = 0; i < columns; i += kLanes) {
      const std::size_t count = std::min(kLanes, columns - i);
      const auto column = static_cast<std::int64_t>(i);
      const auto load = [&](const float* from) HWY_ATTR {
        if (count == kLanes) return hn::LoadU(df, from);
        float part[kLanes] = {};
        std::memcpy(part, from, count * sizeof(float));
        return hn::LoadU(df, part);
      };
      VF value = load(sum + i);
      if (factors.rows != nullptr) {
        const VF of_row = hn::Set(df, factors.rows[r * factors.row_step]);
        value = hn::Mul(hn::Mul(of_row, load(factors.columns + i)), value);
      }
      if (args.alpha != 1) value = hn::Mul(alpha, value);
      if (self != nullptr) {
        const Element* const from = self + column * self_at.column;
        VF addend;
        if (count == kLanes && self_at.column == 1) {
          addend = Format::load(df, from);
        } else {
          Element part[kLanes] = {};
          for (std::size_t j = 0; j < count; ++j) {
            part[j] = from[static_cast<std::int64_t>(j) * self_at.column];
          }
          addend = Format::load(df, part);
        }
        value = exact_fma(df, beta, addend, value);
      }
      // The sums themselves have only quiet nan.
      if (args.alpha != 1 || self != nullptr || factors.rows != nullptr) {
        value = nan_to_quiet(value);
      }
      if (by_column) {
        hn::StoreU(value, df, &all[r][i]);
        continue;
      }
      const auto rounded = Format::narrow_number(df, value);
      Element* const to = out + column * out_at.column;
      if (count == kLanes && out_at.column == 1) {
        hn::StoreU(rounded, d, to);
      } else {
        Element part[kLanes];
        hn::StoreU(rounded, d, part);
        for (std::size_t j = 0; j < count; ++j) {
          to[static_cast<std::int64_t>(j) * out_at.column] = part[j];
        }
      }
    }
    if (self != nullptr) self += self_at.row;
    out += out_at.row;
  }
  for (std::size_t r = 0; by_column && r < rows; r += kLanes) {
    const std::size_t count = std::min(kLanes, rows - r);
    const auto store = [&](std::size_t c, VF column) HWY_ATTR {
      if (c >= columns) return;
      store_first(d, Format::narrow_number(df, column), count,
                  first + static_cast<std::int64_t>(r) +
                      static_cast<std::int64_t>(c) * out_at.column);
    };
    const Source<Float32> sums_of_rows{&all[0][0], kProductLanes, 1, kAll,
                                       kProductLanes};
    for (std::size_t c = for_words(df, sums_of_rows, r, store); c < columns;
         ++c) {
      store(c, hn::Set(df, all[r][c]));  // without vectors, a row
    }
  }
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_PRODUCT_SUMS_INL_H_
