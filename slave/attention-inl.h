// The two products of attention and what surrounds them, per target. Included
// once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ATTENTION_INL_H_
#undef SWAMP_SLAVE_ATTENTION_INL_H_
#else
#define SWAMP_SLAVE_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "slave/attention_args.h"
#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"
#include "slave/exp-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_tile-inl.h"
#include "slave/row-inl.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;

static_assert(kAttentionLanes % kLanes == 0, "blocks are whole vectors");

// A product keeps kRows x kGroup vectors of sums in registers, and needs
// kGroup + 1 more. kGroup vectors of lanes also have their exp computed at
// once.
#if HWY_TARGET == HWY_AVX3
inline constexpr std::size_t kRows = 4, kGroup = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr std::size_t kRows = 4, kGroup = 2;
#else
inline constexpr std::size_t kRows = 2, kGroup = 2;
#endif

// for_groups() calls visit(group, lane) for groups of vectors that cover the
// lanes; group() is the number of vectors.
template <class Visit>
HWY_INLINE void for_groups(std::size_t lanes, const Visit& visit) {
  std::size_t at = 0;
  for (; at + kGroup * kLanes <= lanes; at += kGroup * kLanes) {
    visit(std::make_index_sequence<kGroup>(), at);
  }
  if constexpr (kGroup > 2) {
    for (; at + 2 * kLanes <= lanes; at += 2 * kLanes) {
      visit(std::make_index_sequence<2>(), at);
    }
  }
  for (; at < lanes; at += kLanes) {
    visit(std::make_index_sequence<1>(), at);
  }
}

// Left is the left factor of a product: element (j, t) is
// data[j * row + t * term].
struct Left {
  const float* data;
  std::size_t row, term;
};

// The kinds of products: begin() returns the value with which a sum begins,
// finish() what is stored.

// Scores is the product that is multiplied by a scale.
struct Scores {
  float scale;

  HWY_INLINE VF begin(const float*) const { return hn::Zero(DF()); }
  HWY_INLINE VF finish(VF sum, const float*, std::size_t) const {
    return hn::Mul(sum, hn::Set(DF(), scale));
  }
};

// Accumulation is the product that is added to its result, which is multiplied
// by `factor` of its lane unless that is null.
struct Accumulation {
  const float* factor;

  HWY_INLINE VF begin(const float*) const { return hn::Zero(DF()); }
  HWY_INLINE VF finish(VF sum, const float* result, std::size_t lane) const {
    const DF df;
    const VF before = hn::LoadU(df, result);
    return factor == nullptr
               ? hn::Add(before, sum)
               : exact_fma(df, before, hn::LoadU(df, factor + lane), sum);
  }
};

// Chain is the product whose sums go on from its result if it `continues`.
struct Chain {
  bool continues;

  HWY_INLINE VF begin(const float* result) const {
    return continues ? hn::LoadU(DF(), result) : hn::Zero(DF());
  }
  HWY_INLINE VF finish(VF sum, const float*, std::size_t) const { return sum; }
};

// rows_of() computes sizeof...(r) rows and sizeof...(g) vectors of a product:
// result[j][lane] = sum over t of left(j, t) * right[t][lane].
template <class Kind, std::size_t... r, class Group>
HWY_INLINE void rows_of(const Kind& kind, const Left& left, std::size_t terms,
                        const float* right, std::size_t lanes, std::size_t lane,
                        float* result, std::index_sequence<r...> rows,
                        Group group) {
  const float* const row_start[] = {(left.data + r * left.row)...};
  product_tile<ByFma>(
      [&](auto row, std::size_t t)
          HWY_ATTR { return row_start[row][t * left.term]; },
      right, lanes, terms,
      [&](auto row, auto g)
          HWY_ATTR { return kind.begin(result + row * lanes + g * kLanes); },
      [&](auto row, auto g, VF sum) HWY_ATTR {
        float* const to = result + row * lanes + g * kLanes;
        hn::StoreU(kind.finish(sum, to, lane + g * kLanes), DF(), to);
      },
      rows, group);
}

// product() computes `count` rows of a product in all lanes.
template <class Kind>
HWY_NOINLINE void product(const Kind& kind, const Left& left, std::size_t count,
                          std::size_t terms, const float* right,
                          std::size_t lanes, float* result) {
  for_groups(lanes, [&](auto group, std::size_t lane) HWY_ATTR {
    std::size_t j = 0;
    Left at = left;
    float* to = result + lane;
    for (; j + kRows <= count; j += kRows) {
      rows_of(kind, at, terms, right + lane, lanes, lane, to,
              std::make_index_sequence<kRows>(), group);
      at.data += kRows * left.row;
      to += kRows * lanes;
    }
    for (; j < count; ++j) {
      rows_of(kind, at, terms, right + lane, lanes, lane, to,
              std::make_index_sequence<1>(), group);
      at.data += left.row;
      to += lanes;
    }
  });
}

// Visible is what causal attention hides of a step: of its unit j, only the
// lanes [begin[j], end[j]) count.
struct Visible {
  bool all = true;
  std::int32_t begin[kMaxAttentionKeys];
  std::int32_t end[kMaxAttentionKeys];

  // lanes() is a mask of the lanes [lane, lane + kLanes).
  HWY_INLINE hn::Mask<DF> lanes(std::size_t unit, std::size_t lane) const {
    const DI di;
    const auto i = hn::Iota(di, static_cast<std::int32_t>(lane));
    const auto hidden = hn::Or(hn::Lt(i, hn::Set(di, begin[unit])),
                               hn::Lt(hn::Set(di, end[unit] - 1), i));
    return hn::RebindMask(DF(), hn::Not(hidden));
  }
};

// store_row() rounds a row to its type. It reads whole vectors.
template <class Format>
HWY_INLINE void store_row(const float* row, std::size_t columns,
                          typename Format::Element* out) {
  using Element = typename Format::Element;
  const DF df;
  const hn::Rebind<Element, DF> d;
  std::size_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    hn::StoreU(Format::narrow(df, hn::LoadU(df, row + c)), d, out + c);
  }
  if (c == columns) return;
  Element last[kLanes];
  hn::StoreU(Format::narrow(df, hn::LoadU(df, row + c)), d, last);
  std::memcpy(out + c, last, (columns - c) * sizeof(Element));
}

// store_panel() rounds finish(d, row, value) + 0 of the values of a panel,
// whose lanes are columns and whose terms are rows, to rows that are `step`
// bytes apart.
template <class Format, class Finish>
HWY_INLINE void store_panel(const Source<Float32>& panel,
                            typename Format::Element* out, std::size_t step,
                            const Finish& finish) {
  using Element = typename Format::Element;
  const auto rounded = [&](auto d, std::size_t row, auto value) HWY_ATTR {
    return Format::narrow(d, hn::Add(finish(d, row, value), hn::Zero(d)));
  };
  const auto place = [&](std::size_t row, std::size_t column) {
    return reinterpret_cast<Element*>(reinterpret_cast<std::byte*>(out) +
                                      row * step) +
           column;
  };
  const std::size_t stored = for_terms(
      panel,
      [&](auto d, std::size_t column, std::size_t row, auto value) HWY_ATTR {
        hn::StoreU(rounded(d, row, value), hn::Rebind<Element, decltype(d)>(),
                   place(row, column));
      });
  const DF df;
  for (std::size_t c = stored; c < panel.lanes; ++c) {
    for (std::size_t row = 0; row < panel.terms; ++row) {
      *place(row, c) =
          hn::GetLane(rounded(df, row, hn::Set(df, *panel.at(c, row))));
    }
  }
}

// has_nonfinite() returns whether one of the floats is inf or nan.
HWY_NOINLINE inline bool has_nonfinite(const float* data, std::size_t count) {
  const hn::RebindToUnsigned<DF> du;
  const auto exponent = hn::Set(du, 0x7f800000u);
  auto found = hn::FirstN(du, 0);
  const auto* bits = reinterpret_cast<const std::uint32_t*>(data);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    found = hn::Or(
        found, hn::Eq(hn::And(hn::LoadU(du, bits + i), exponent), exponent));
  }
  bool result = !hn::AllFalse(du, found);
  for (; i < count; ++i) {
    result = result || (bits[i] & 0x7f800000u) == 0x7f800000u;
  }
  return result;
}

// accumulate() adds to result[c][lane], for each of `columns`, the sum of the
// products weight[j][lane] * rows[j][c] of the units j of a step; `factor` is
// as in Accumulation. The weights of hidden units are 0, which hides all but
// inf and nan; these are left out unit by unit.
HWY_NOINLINE inline void accumulate(const float* weights, const float* rows,
                                    std::size_t count, std::size_t columns,
                                    std::size_t lanes, const float* factor,
                                    const Visible& visible, float* result) {
  if (HWY_LIKELY(visible.all || !has_nonfinite(rows, count * columns))) {
    product(Accumulation{factor}, {rows, 1, columns}, columns, count, weights,
            lanes, result);
    return;
  }
  const DF df;
  const Accumulation kind{factor};
  for (std::size_t lane = 0; lane < lanes; lane += kLanes) {
    for (std::size_t c = 0; c < columns; ++c) {
      float* const at = result + c * lanes + lane;
      VF sum = hn::Zero(df);
      for (std::size_t j = 0; j < count; ++j) {
        const VF next =
            exact_fma(df, hn::Set(df, rows[j * columns + c]),
                      hn::LoadU(df, weights + j * lanes + lane), sum);
        sum = hn::IfThenElse(visible.lanes(j, lane), next, sum);
      }
      hn::StoreU(kind.finish(sum, at, lane), df, at);
    }
  }
}

// widened() returns `count` elements as float32: themselves, or a copy.
template <class Format>
HWY_INLINE const float* widened(const typename Format::Element* from,
                                std::size_t count, float* copy) {
  if constexpr (std::is_same<Format, Float32>::value) {
    (void)count;
    (void)copy;
    return from;
  } else {
    const DF df;
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      hn::StoreU(Format::load(df, from + i), df, copy + i);
    }
    for (; i < count; ++i) copy[i] = Format::widen(from[i]);
    return copy;
  }
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ATTENTION_INL_H_
