// The kernel of products with few rows, which reads b as it lies in memory:
// groups of words are transposed in registers, or a panel is packed in the
// scratch memory. Compiled once per target by Highway.
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
  auto* local = static_cast<float*>(tile.scratch);
  auto* panel = static_cast<std::byte*>(tile.scratch) + kProductTileBytes;
  const bool pairs = args.pairs != 0;
  const std::size_t height = product_rows_width(args.rows);
  const ProductSteps b_at = steps_of(tile.layout[At::b], args.in, sizeof *b),
                     self_at = steps_of(tile.layout[At::self], args.self,
                                        sizeof *self),
                     out_at =
                         steps_of(tile.layout[At::out], args.out, sizeof *out);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const std::size_t columns = std::min<std::size_t>(
        kProductLanes, args.columns - (tile.first + i) * kProductLanes);
    const Sums sums{local, kProductLanes};
    std::size_t term = 0;
#if HWY_TARGET == HWY_AVX3
    if (columns == kProductLanes && b_at.row == 1) {
      // One vector of two rows has enough sums to hide their latency.
      const auto rows = height == 1
                            ? tile.prefetch_bytes != 0 ? rows_of_words<In, 1, 1>
                                                       : rows_of_words<In, 1, 2>
                        : height == 2 ? rows_of_words<In, 2, 1>
                        : height == 4 ? rows_of_words<In, 4, 1>
                                      : rows_of_words<In, 8, 1>;
      term = rows(
          {b, b_at.column, 1, columns, static_cast<std::size_t>(args.terms)}, a,
          words_of(a), pairs, sums);
    }
#endif
    while (term < args.terms || args.terms == 0) {
      const Source<In> block{
          b + static_cast<std::int64_t>(term) * b_at.row, b_at.column, b_at.row,
          columns, std::min<std::size_t>(args.block_terms, args.terms - term)};
      pack_panel<In>(block, kProductLanes, pairs, panel);
      add_words(height,
                Packed{exponent_of(a),
                       words_of(a) + (pairs ? term / 2 : term) * height, height,
                       0},
                {panel, 0}, panel, words_of(panel), block.terms, pairs,
                term == 0 ? Sums{nullptr, kProductLanes} : sums, sums);
      term += block.terms;
      if (args.terms == 0) break;
    }
    finish<Out>(args, sums, args.rows, columns, self, self_at, out, out_at,
                factors);
    if (factors.rows != nullptr) factors.columns += kProductLanes;
    if (args.terms != 0) b += tile.layout[At::b].unit_step / sizeof *b;
    if (self != nullptr) self += tile.layout[At::self].unit_step / sizeof *self;
    out += tile.layout[At::out].unit_step / sizeof *out;
  }
}

}  // namespace

SWAMP_KERNELS(product_rows, kSameOrWide, product_rows<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
