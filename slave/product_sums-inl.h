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

// A way adds one packed word of a and b to the sums: a term, or a pair.
using Floats = ByFma;
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
#if HWY_TARGET == HWY_AVX3
struct PairsByDot : ByFma {
  static HWY_INLINE VF add(VF a, VF b, VF sum) {
    // The intrinsic is not part of this target.
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#else
using PairsByDot = PairsByFma;
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

// Ahead is what a tile prefetches with each word: the word of the rows after
// it, `a` floats away, and b_step bytes of the next panel, from `b` on. The
// rows of a slave are too short for the CPU's own prefetches to keep up.
struct Ahead {
  std::size_t a;
  const std::byte* b;
  std::size_t b_step;
};

// tile() adds `terms` packed words to the sums `from`, which are 0 if its data
// are null, of kHeight rows and a whole panel. a_step is the floats between two
// words of a.
template <class Way, std::size_t kHeight, class Format>
HWY_NOINLINE void tile(const float* a, std::size_t a_step, const Ahead& ahead,
                       const float* b, std::size_t terms, const Sums& from,
                       const Target<Format>& to) {
  const DF df;
  const hn::Rebind<typename Format::Element, DF> d;
  for (std::size_t i = 0; i < kProductLanes; i += kVectors * kLanes) {
    product_tile<Way>(
        [&](auto row, std::size_t t) HWY_ATTR {
          if (row == 0) {
            hwy::Prefetch(a + t * a_step + ahead.a);
            __builtin_prefetch(ahead.b + t * ahead.b_step, 0, 2);
          }
          return a[t * a_step + row];
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
template <class Way, class Format>
HWY_INLINE void tiles(std::size_t height, const float* a, std::size_t a_step,
                      const Ahead& ahead, const float* b, std::size_t terms,
                      const Sums& from, const Target<Format>& to) {
  constexpr std::size_t kMost = kRows >= 8 ? 8 : kRows >= 4 ? 4 : 2;
  if (height == kRows) {
    return tile<Way, kRows>(a, a_step, ahead, b, terms, from, to);
  }
  for (std::size_t r = 0; r < height; r += kMost) {
    const std::size_t rows = std::min(kMost, height);
    const auto one = rows == 8 ? tile<Way, kMost, Format>
                     : rows == 4
                         ? tile<Way, std::min<std::size_t>(kMost, 4), Format>
                     : rows == 2 ? tile<Way, 2, Format>
                                 : tile<Way, 1, Format>;
    one(a + r, a_step, ahead, b, terms, from.after(r), to.after(r));
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

// add_words() adds the words of `terms` terms to one tile. The sliver of a and
// the panel of b that the words are of have the least exponents.
template <class Format>
HWY_INLINE void add_words(std::size_t height, const std::byte* sliver,
                          const float* a, std::size_t a_step,
                          const Ahead& ahead, const std::byte* panel,
                          const float* b, std::size_t terms, bool pairs,
                          const Sums& from, const Target<Format>& to) {
  if (!pairs) {
    return tiles<Floats>(height, a, a_step, ahead, b, terms, from, to);
  }
  const auto exponent = [](const std::byte* head) {
    return reinterpret_cast<const ProductPanel*>(head)->least_exponent;
  };
  terms = (terms + 1) / 2;
  if (can_use_dot(exponent(sliver), exponent(panel)) &&
      (from.data == nullptr || !has_small(from, height))) {
    tiles<PairsByDot>(height, a, a_step, ahead, b, terms, from, to);
  } else {
    tiles<PairsByFma>(height, a, a_step, ahead, b, terms, from, to);
  }
}

// Factors of the rows and columns of a result; null: none.
struct Factors {
  const float* rows;
  std::size_t row_step;
  const float* columns;
};

// finish() rounds `rows` rows of sums to the result.
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
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_PRODUCT_SUMS_INL_H_
