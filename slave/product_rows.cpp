// The kernel of products with few rows, or of float32 with at most 512 terms,
// which reads b as it lies in memory: rows of b are added as they are, groups
// of words of its columns are transposed in registers, or a panel is packed in
// the scratch memory. Compiled once per target by Highway.
#include "slave/kernel_table.h"
#include "slave/product_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/product_rows.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "slave/product_pack-inl.h"
#include "slave/product_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3
// rows_of_words() computes kHeight rows of sums from groups of eight words of a
// whole panel, whose terms are consecutive, without packing them. It
// returns the number of terms; with pairs 0, if the instruction may not be
// used. It reads kVectors vectors of lanes at a time: 2 have enough sums to
// hide the latency of the additions, but memory is faster if 16 lanes are read
// than 32, above all if the lanes are a power of two apart and share places in
// L1. Each line is prefetched once, so far ahead that main memory has the time:
// what L1 has no place for waits in L2, and a second prefetch takes longer.
template <class Format, std::size_t kHeight, std::size_t kVectors>
HWY_INLINE std::size_t rows_of_words(const Source<Format>& x,
                                     const std::byte* sliver, const float* a,
                                     bool pairs, const Sums& to) {
  const DF df;
  const DU du;
  const hn::Repartition<std::uint16_t, DF> d16;
  constexpr std::size_t kWords = 8;
  constexpr std::size_t kLine = 16;  // words
  constexpr std::size_t kAhead = 16 * kLine;
  constexpr std::size_t kLanesAtOnce = kVectors * kLanes;
  LeastExponent least;
  const std::size_t words = x.terms / kWordTerms<Format> / kWords * kWords;
  for (std::size_t lane = 0; lane < kProductLanes; lane += kLanesAtOnce) {
    VF sum[kHeight][kVectors];
    for (std::size_t r = 0; r < kHeight; ++r) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::Zero(df);
      }
    }
    for (std::size_t w = 0; w < words; w += kWords) {
      // Prefetches a line of half of the lanes, one with each word of a vector:
      // all at once would keep the loads waiting.
      const std::size_t ahead = w / kLine * kLine + kAhead,
                        first = lane + w / kWords % 2 * (kLanesAtOnce / 2);
      const auto* next =
          ahead < words ? x.at(first, ahead * kWordTerms<Format>)
                        : x.at(first + kLanesAtOnce,  // the next lanes
                               (ahead - words) * kWordTerms<Format>);
      for (std::size_t v = 0; v < kVectors; ++v) {
        VF word[kWords];
        transposed_lines(x, lane + v * kLanes, w, word);
        const auto add = [&](auto way, std::size_t place, VF b) HWY_ATTR {
          for (std::size_t r = 0; r < kHeight; ++r) {
            const VF y = hn::Set(df, a[place * kHeight + r]);
            sum[r][v] = decltype(way)::add(y, b, sum[r][v]);
          }
        };
        for (std::size_t i = 0; i < kWords; ++i) {
          hwy::Prefetch(next);
          next += x.lane_step;
          if constexpr (kWordTerms<Format> == 1) {
            add(Floats(), w + i, word[i ^ 1]);
          } else if constexpr (std::is_same<Format, Float16>::value) {
            if (i % 2 != 0) continue;
            // The odd and the even terms of two words.
            const auto one = hn::BitCast(d16, word[i]),
                       two = hn::BitCast(d16, word[i + 1]),
                       odd = hn::ConcatOdd(d16, two, one),
                       even = hn::ConcatEven(d16, two, one);
            const hn::Half<decltype(d16)> half;
            const std::size_t term = 2 * (w + i);
            add(Floats(), term, widen_float16(df, hn::LowerHalf(half, odd)));
            add(Floats(), term + 1,
                widen_float16(df, hn::LowerHalf(half, even)));
            add(Floats(), term + 2,
                widen_float16(df, hn::UpperHalf(half, odd)));
            add(Floats(), term + 3,
                widen_float16(df, hn::UpperHalf(half, even)));
          } else if (pairs) {
            least.add(hn::BitCast(LeastExponent::D(), word[i]));
            add(PairsByDot(), w + i, word[i]);
          } else {
            const auto pair = hn::BitCast(du, word[i]);
            add(Floats(), 2 * (w + i), widen_half<Format>(df, pair, true));
            add(Floats(), 2 * (w + i) + 1, widen_half<Format>(df, pair, false));
          }
        }
      }
    }
    for (std::size_t r = 0; r < kHeight; ++r) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(nan_to_quiet(sum[r][v]), df,
                   to.data + r * to.row + lane + v * kLanes);
      }
    }
  }
  if (pairs) {
    const auto& head = *reinterpret_cast<const ProductPanel*>(sliver);
    if (!can_use_dot(head.least_exponent, least.exponent())) return 0;
  }
  return words * kWordTerms<Format>;
}
#endif

// Rows are slivers of a, packed one after another, each of `height` rows.
struct Slivers {
  const std::byte* first;
  std::size_t count, height, bytes;

  HWY_INLINE const std::byte* at(std::size_t g) const {
    return first + g * bytes;
  }
  HWY_INLINE std::size_t rows() const { return count * height; }
};

// Lines is where columns of a result are rounded to: `rows` rows, `step`
// elements apart, at neighbours; or nowhere.
template <class Format>
struct Lines {
  typename Format::Element* data;
  std::int64_t step;
  std::size_t rows;

  HWY_INLINE Lines at(std::size_t row, std::size_t column) const {
    if (data == nullptr) return *this;
    return {data + static_cast<std::int64_t>(row) * step + column, step,
            rows - std::min(rows, row)};
  }
};

// load_first() loads the first `count` floats and reads nothing else.
HWY_INLINE VF load_first(DF df, const float* from, std::size_t count) {
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(df, count), df, from);
#else
  float lanes[kLanes] = {};
  std::copy_n(from, count, lanes);
  return hn::LoadU(df, lanes);
#endif
}

// Next is the columns that a call prefetches into L1, if it takes long enough:
// with each term one vector of them, or one for each vector of the call.
struct Next {
  std::size_t columns;  // to them
  bool is_one;
};

// add_columns() adds the products of `terms` terms to kHeight rows of sums of
// kWide vectors of columns from `column` on, which are neighbours in the rows
// of b, `step` elements apart. The terms of a are kWidth words apart. The sums
// of kProductLanes columns are lines of a unit; the next unit is `unit` floats
// away. They are rounded to `out`, if that is given. kIsPart is for the first
// `part` columns of one vector of float32.
template <class In, class Out, std::size_t kWidth, std::size_t kHeight,
          std::size_t kWide, bool kIsPart>
HWY_INLINE void add_columns(const typename In::Element* b, std::int64_t step,
                            const float* a, std::size_t terms, bool is_first,
                            float* sums, std::size_t unit, std::size_t column,
                            const Next& next, std::size_t part,
                            const Lines<Out>& out) {
  const DF df;
  const auto at = [&](std::size_t r, std::size_t v) {
    const std::size_t lane = column + v * kLanes;
    return sums + lane / kProductLanes * unit + r * kProductLanes +
           lane % kProductLanes;
  };
  constexpr std::make_index_sequence<kHeight> kEachRow;
  constexpr std::make_index_sequence<kWide> kEachVector;
  VF sum[kHeight][kWide];
  const auto for_sums = [&](const auto& visit) HWY_ATTR {
    for_constants(
        [&](auto r) HWY_ATTR {
          for_constants([&](auto v) HWY_ATTR { visit(r, v); }, kEachVector);
        },
        kEachRow);
  };
  for_sums([&](auto r, auto v) HWY_ATTR {
    sum[r][v] = is_first ? hn::Zero(df) : hn::LoadU(df, at(r, v));
  });
  const auto add = [&](const float* row_of_a, const typename In::Element* row)
      HWY_ATTR __attribute__((always_inline)) {
    VF x[kWide];
    for_constants(
        [&](auto v) HWY_ATTR {
          if constexpr (kIsPart) {
            x[v] = load_first(df, row, part);
          } else {
            x[v] = In::load(df, row + v * kLanes);
          }
          if (kHeight >= 4 && (v == 0 || !next.is_one)) {
            hwy::Prefetch(row + next.columns + v * kLanes);
          }
        },
        kEachVector);
    for_constants(
        [&](auto r) HWY_ATTR {
          const VF y = hn::Set(df, row_of_a[r]);
          for_constants(
              [&](auto v)
                  HWY_ATTR { sum[r][v] = Floats::add(y, x[v], sum[r][v]); },
              kEachVector);
        },
        kEachRow);
  };
  for (; terms >= 2; terms -= 2) {
    add(a, b + step);
    add(a + kWidth, b);
    a += 2 * kWidth;
    b += 2 * step;
  }
  if (terms != 0) add(a, b);
  const hn::Rebind<typename Out::Element, DF> d;
  for_sums([&](auto r, auto v) HWY_ATTR {
    const VF value = nan_to_quiet(sum[r][v]);
    if (out.data == nullptr) {
      hn::StoreU(value, df, at(r, v));
    } else if (r < out.rows) {
      store_first(
          d, Out::narrow_number(df, value), kIsPart ? part : kLanes,
          out.data + static_cast<std::int64_t>(r) * out.step + v * kLanes);
    }
  });
}

// rows_in_place() computes `columns` columns that are neighbours in the rows of
// b, or their sums, for add_columns(): `block` terms of all columns, then the
// next terms.
template <class In, class Out, std::size_t kWidth>
HWY_INLINE void rows_in_place(const typename In::Element* b, std::int64_t step,
                              const Slivers& a, std::size_t terms,
                              std::size_t block, std::size_t columns,
                              float* sums, const Lines<Out>& out) {
  // Rows and vectors of sums that leave registers for the factors.
  constexpr bool kHasFew = kRows < 8;
  constexpr std::size_t kHeight = kHasFew && kWidth > 4 ? 4 : kWidth;
  constexpr std::size_t kSums = kHasFew ? 12 : kHeight < 8 ? 16 : 24;
  constexpr std::size_t kWide = kSums / kHeight;
  constexpr std::size_t kNarrow =
      std::min(kWide, std::max<std::size_t>(1, kProductLanes / kLanes));
  const std::size_t unit = a.rows() * kProductLanes;
  for (std::size_t t = 0; t < terms; t += block) {
    const bool is_last = terms - t <= block;
    const auto add = [&](auto wide, auto is_part, std::size_t c) HWY_ATTR {
      const bool is_one = a.rows() >= wide * kHeight;
      for (std::size_t r = 0; r < a.rows(); r += kHeight) {
        add_columns<In, Out, kWidth, kHeight, wide, is_part>(
            b + static_cast<std::int64_t>(t) * step + c, step,
            words_of(a.at(r / kWidth)) + t * kWidth + r % kWidth,
            std::min(block, terms - t), t == 0, sums + r * kProductLanes, unit,
            c, {(wide + (is_one ? r / kHeight % wide : 0)) * kLanes, is_one},
            columns - c, is_last ? out.at(r, c) : Lines<Out>{});
      }
    };
    using One = std::integral_constant<std::size_t, 1>;
    std::size_t c = 0;
    for (; c + kWide * kLanes <= columns; c += kWide * kLanes) {
      add(std::integral_constant<std::size_t, kWide>(), std::false_type(), c);
    }
    for (; c + kNarrow * kLanes <= columns; c += kNarrow * kLanes) {
      add(std::integral_constant<std::size_t, kNarrow>(), std::false_type(), c);
    }
    for (; c + kLanes <= columns; c += kLanes) {
      add(One(), std::false_type(), c);
    }
    if constexpr (std::is_same<In, Float32>::value) {
      if (c < columns) add(One(), std::true_type(), c);
    }
  }
}

template <class In, class Out>
HWY_INLINE void product_rows(const void* arguments, const Tile& tile, Result&) {
  using At = ProductRowsOperand;
  using Element = typename Out::Element;
  const auto& args = *static_cast<const ProductArgs*>(arguments);
  const auto* b = operand<const typename In::Element>(tile, At::b);
  const auto* a = operand<const std::byte>(tile, At::a);
  const auto* self = operand<const Element>(tile, At::self);
  auto* out = operand<Element>(tile, At::out);
  Factors factors{operand<const float>(tile, At::a_scales), 1,
                  operand<const float>(tile, At::b_scales)};
  const bool pairs = args.pairs != 0;
  const std::size_t terms = args.terms;
  const std::size_t height = product_rows_width(args.rows);
  const Slivers slivers{a, (args.rows + height - 1) / height, height,
                        product_panel_bytes(terms, height, pairs)};
  auto* const local = static_cast<float*>(tile.scratch);
  auto* const panel = static_cast<std::byte*>(tile.scratch) +
                      product_rows_sums_bytes(args.rows);
  const Sums sums{local, kProductLanes};
  const ProductSteps b_at = steps_of(tile.layout[At::b], args.in, sizeof *b),
                     self_at = steps_of(tile.layout[At::self], args.self,
                                        sizeof *self),
                     out_at =
                         steps_of(tile.layout[At::out], args.out, sizeof *out);
  const std::size_t b_unit = tile.layout[At::b].unit_step / sizeof *b;
  const std::size_t out_unit = tile.layout[At::out].unit_step / sizeof *out;
  // Of units whose columns are neighbours in the rows of b, as many at a time
  // as the scratch memory has place for their sums; otherwise one.
  // With pairs b is packed, whatever its steps in LDM.
  const bool in_place = terms != 0 && !pairs && b_at.column == 1;
  const bool are_sums_out = self == nullptr && factors.rows == nullptr &&
                            args.alpha == 1 && out_at.column == 1 &&
                            out_unit == kProductLanes;
  // A few terms at a time are read in long runs of each row of b. Many rows
  // take all terms that stay in the caches.
  constexpr std::size_t kFewTerms = 64, kManyTerms = 512;
  const std::size_t at_once =
      slivers.count <= 2 || terms > kManyTerms ? kFewTerms : kManyTerms;
  const std::size_t most =
      !in_place || b_unit != kProductLanes ? 1
      : are_sums_out && terms <= at_once
          ? tile.count
          : product_rows_scratch_bytes(args.rows, args.block_terms) /
                (slivers.rows() * kProductLanes * sizeof(float));
  for (std::size_t i = 0; i < tile.count;) {
    const std::size_t left = args.columns - (tile.first + i) * kProductLanes;
    const std::size_t units = std::max<std::size_t>(
        1, std::min({tile.count - i, left / kProductLanes, most}));
    const std::size_t columns = std::min(left, kProductLanes);
    const bool is_whole = columns == kProductLanes;
    std::size_t term = 0;
    if (in_place && (is_whole || std::is_same<In, Float32>::value)) {
      const auto rows = height == 1   ? rows_in_place<In, Out, 1>
                        : height == 2 ? rows_in_place<In, Out, 2>
                        : height == 4 ? rows_in_place<In, Out, 4>
                                      : rows_in_place<In, Out, 8>;
      rows(
          b, b_at.row, slivers, terms, at_once, units * columns, local,
          are_sums_out ? Lines<Out>{out, out_at.row, args.rows} : Lines<Out>{});
      term = terms;
      if (are_sums_out) {
        b += units * b_unit;
        out += units * out_unit;
        i += units;
        continue;
      }
    }
#if HWY_TARGET == HWY_AVX3
    if (is_whole && b_at.row == 1 && term == 0) {
      // One vector of two rows has enough sums to hide their latency.
      const auto rows = height == 1
                            ? tile.prefetch_bytes != 0 ? rows_of_words<In, 1, 1>
                                                       : rows_of_words<In, 1, 2>
                        : height == 2 ? rows_of_words<In, 2, 1>
                        : height == 4 ? rows_of_words<In, 4, 1>
                                      : rows_of_words<In, 8, 1>;
      term = terms;
      for (std::size_t g = 0; g < slivers.count; ++g) {
        const std::byte* const sliver = slivers.at(g);
        term = std::min(term,
                        rows({b, b_at.column, 1, columns, terms}, sliver,
                             words_of(sliver), pairs, sums.after(g * height)));
      }
    }
#endif
    while (term < terms || terms == 0) {
      const Source<In> block{
          b + static_cast<std::int64_t>(term) * b_at.row, b_at.column, b_at.row,
          columns, std::min<std::size_t>(args.block_terms, terms - term)};
      pack_panel<In>(block, kProductLanes, pairs, panel);
      for (std::size_t g = 0; g < slivers.count; ++g) {
        const std::byte* const sliver = slivers.at(g);
        const Sums to = sums.after(g * height);
        add_words(
            height,
            Packed<In>{exponent_of(sliver),
                       words_of(sliver) + (pairs ? term / 2 : term) * height,
                       height, 0},
            {panel, 0}, panel, words_of(panel), block.terms, pairs,
            term == 0 ? Sums{nullptr, kProductLanes} : to, to);
      }
      term += block.terms;
      if (terms == 0) break;
    }
    for (std::size_t u = 0; u < units; ++u) {
      for (std::size_t r = 0; r < args.rows; r += height) {
        const auto row = static_cast<std::int64_t>(r);
        finish<Out>(
            args, sums.after(u * slivers.rows() + r),
            std::min<std::size_t>(height, args.rows - r), columns,
            self == nullptr ? nullptr : self + row * self_at.row, self_at,
            out + row * out_at.row, out_at,
            {factors.rows == nullptr ? nullptr
                                     : factors.rows + r * factors.row_step,
             factors.row_step, factors.columns});
      }
      if (factors.rows != nullptr) factors.columns += kProductLanes;
      if (self != nullptr) {
        self += tile.layout[At::self].unit_step / sizeof *self;
      }
      out += out_unit;
    }
    if (terms != 0) b += units * b_unit;
    i += units;
  }
}

}  // namespace

SWAMP_KERNELS(product_rows, kSameOrWide, product_rows<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
