// The kernels of matrix products, as Goto's and BLIS's: b is packed in panels
// of columns, a in slivers of a few rows, and a tile of the result stays in
// registers while the terms pass. Compiled once per target by Highway.
#include "slave/kernel_table.h"
#include "slave/product_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/exact_fma-inl.h"
#include "slave/formats-inl.h"
#include "slave/product_tile-inl.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
constexpr std::size_t kLanes = hn::MaxLanes(DF());

// A tile has kRows rows and kVectors vectors of sums in registers.
constexpr std::size_t kVectors = kLanes * 2 <= kProductLanes ? 2 : 1;
constexpr std::size_t kRows = kTileRows;
static_assert(kRows <= kMaxProductRows);

// ---- Packing

// pack_floats() packs the terms of a source in the order of the sum.
template <class Format>
HWY_INLINE void pack_floats(const Source<Format>& x, std::size_t width,
                            float* out) {
  const std::size_t packed = for_terms(
      x, [&](auto d, std::size_t lane, std::size_t t, auto value) HWY_ATTR {
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

// Returns the smallest biased exponent of the numbers of `pairs` that are not
// 0.
HWY_INLINE std::uint32_t least_exponent(const std::uint32_t* pairs,
                                        std::size_t count) {
  const LeastExponent::D d;
  constexpr std::size_t kWidth = hn::MaxLanes(LeastExponent::D());
  const auto* numbers = reinterpret_cast<const std::uint16_t*>(pairs);
  LeastExponent least;
  std::size_t i = 0;
  for (; i + kWidth <= 2 * count; i += kWidth) {
    least.add(hn::LoadU(d, numbers + i));
  }
  std::uint16_t rest[kWidth] = {};
  std::memcpy(rest, numbers + i, (2 * count - i) * sizeof rest[0]);
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
  return least_exponent(out, count * width);
}

// pack_panel() packs a source of `width` lanes at `panel` and returns its end.
template <class Format>
HWY_INLINE std::byte* pack_panel(const Source<Format>& x, std::size_t width,
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

template <class Format>
HWY_INLINE void pack(const void* arguments, const Tile& tile, Result&) {
  using At = ProductPackOperand;
  const auto& args = *static_cast<const ProductPackArgs*>(arguments);
  const auto* x = operand<const typename Format::Element>(tile, At::x);
  auto* panel = operand<std::byte>(tile, At::panel);
  const ProductSteps at = steps_of(tile.layout[At::x], args.x, sizeof *x);
  for (std::size_t i = 0; i < tile.count; ++i) {
    pack_panel<Format>({x, at.column, at.row, args.lanes,
                        static_cast<std::size_t>(args.terms)},
                       args.width, args.pairs != 0, panel);
    panel += tile.layout[At::panel].unit_step;
    x += tile.layout[At::x].unit_step / sizeof *x;
  }
}

// ---- Tiles

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

// ---- The result

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

// ---- Products

// In and Out are the formats of the operands and of the result.
template <class In, class Out>
struct Product {
  using Element = typename Out::Element;
  using At = ProductOperand;

  const ProductArgs& args;
  const typename In::Element* a;
  const std::byte* b;
  float* sums;
  const Element* self;
  Element* out;
  const float *a_scales, *b_scales;
  std::byte* packed;  // rows of a, unless args.packed_rows
  float* local;       // a tile of sums
  ProductSteps a_at, self_at, out_at;
  std::size_t sums_panel;  // floats from panel to panel of the sums
  std::size_t a_scales_row, b_scales_step;  // floats from one to the next
  std::size_t first;                        // row of a gathered or packed a
  bool pairs;
  bool direct;  // the result is the rounded sums
  bool non_temporal;

  Product(const ProductArgs& arguments, const Tile& tile)
      : args(arguments),
        a(operand<const typename In::Element>(tile, At::a)),
        b(operand<const std::byte>(tile, At::b)),
        sums(operand<float>(tile, At::sums)),
        self(operand<const Element>(tile, At::self)),
        out(operand<Element>(tile, At::out)),
        a_scales(operand<const float>(tile, At::a_scales)),
        b_scales(operand<const float>(tile, At::b_scales)),
        packed(static_cast<std::byte*>(tile.scratch) + kProductTileBytes),
        local(static_cast<float*>(tile.scratch)),
        a_at(row_steps_of(tile.layout[At::a], args.in, sizeof *a)),
        self_at(row_steps_of(tile.layout[At::self], args.self, sizeof *self)),
        out_at(row_steps_of(tile.layout[At::out], args.out, sizeof *out)),
        sums_panel(tile.layout[At::sums].line_step / sizeof *sums),
        a_scales_row(tile.layout[At::a_scales].unit_step / sizeof *a_scales),
        b_scales_step(tile.layout[At::b_scales].line_step / sizeof *b_scales),
        first(args.first_row + tile.first),
        pairs(args.pairs != 0),
        direct(self == nullptr && args.alpha == 1 && out_at.column == 1 &&
               a_scales == nullptr),
        // 16-bit results, which a tile stores as halves of vectors, gain
        // nothing.
        non_temporal(tile.non_temporal && sizeof(Element) == sizeof(float) &&
                     (reinterpret_cast<std::uintptr_t>(out) |
                      tile.layout[At::out].unit_step) %
                             sizeof(VF) ==
                         0) {}

  // pack_rows() packs a part of the rows and terms, in slivers.
  HWY_INLINE void pack_rows(std::size_t row, std::size_t rows, std::size_t term,
                            std::size_t terms) const {
    Source<In> block{a, a_at.row, a_at.column, rows, terms};
    if (args.row_runs.begins != nullptr) {
      block = gathered(row, rows, term, terms);
    } else if (terms != 0) {
      block.data = at(a, a_at, row, term);
    }
    std::byte* to = packed;
    for (std::size_t r = 0; r < rows;) {
      const std::size_t height = sliver_rows(rows - r);
      to = pack_panel<In>({terms == 0 ? a : block.at(r, 0), block.lane_step,
                           block.term_step, height, terms},
                          height, pairs, to);
      r += height;
    }
  }

  HWY_INLINE std::byte* after_packed() const {
    return packed - kProductTileBytes +
           product_scratch_bytes(args.block_rows, args.block_terms, 0);
  }

  // Copies a part of a to the scratch memory after the packed rows; the
  // dimension with the longer runs becomes contiguous.
  HWY_INLINE Source<In> gathered(std::size_t row, std::size_t rows,
                                 std::size_t term, std::size_t terms) const {
    auto* const copy = reinterpret_cast<typename In::Element*>(after_packed());
    const std::size_t r0 = first + row, t0 = args.first_term + term;
    if (args.term_runs.length >= args.row_runs.length) {
      copy_runs(args.row_runs, r0, rows, args.term_runs, t0, terms, copy);
      return {copy, static_cast<std::int64_t>(terms), 1, rows, terms};
    }
    copy_runs(args.term_runs, t0, terms, args.row_runs, r0, rows, copy);
    return {copy, 1, static_cast<std::int64_t>(rows), rows, terms};
  }

  // copy_runs() copies `count` lines from `line` on, each of `width` elements
  // from `from` on.
  HWY_INLINE void copy_runs(const ProductRuns& lines, std::size_t line,
                            std::size_t count, const ProductRuns& runs,
                            std::size_t from, std::size_t width,
                            typename In::Element* to) const {
    for (std::size_t l = line; l < line + count; ++l) {
      const auto* const begin = a + lines.place(l);
      std::size_t run = from / runs.length, offset = from % runs.length;
      for (std::size_t left = width; left != 0; ++run, offset = 0) {
        const std::size_t length =
            std::min<std::size_t>(runs.length - offset, left);
        std::memcpy(to, begin + runs.begins[run] + offset,
                    length * sizeof(*to));
        to += length;
        left -= length;
      }
    }
  }

  // add_scaled() adds terms from `term` on to the sums `from` of rows from
  // `row` on and of a panel that begins at `column`.
  HWY_INLINE void add_scaled(std::size_t height, const std::byte* sliver,
                             const float* a_words, std::size_t a_step,
                             const std::byte* panel, std::size_t row,
                             std::size_t column, std::size_t columns,
                             std::size_t term, std::size_t terms, Sums from,
                             const Sums& to) const {
    const DF df;
    const Sums chain{reinterpret_cast<float*>(after_packed()), kProductLanes};
    const std::size_t most = args.scale_terms;
    for (std::size_t t = 0; t < terms; t += most) {
      const std::size_t words = pairs ? t / 2 : t, step = (term + t) / most;
      add_words(height, sliver, a_words + words * a_step, a_step, {0, panel, 0},
                panel, words_of(panel) + words * kProductLanes,
                std::min(most, terms - t), pairs, {nullptr, kProductLanes},
                chain);
      float b_factors[kProductLanes] = {};
      std::memcpy(b_factors, b_scales + step * b_scales_step + column,
                  columns * sizeof(float));
      for (std::size_t r = 0; r < height; ++r) {
        const VF a_factor =
            hn::Set(df, a_scales[(row + r) * a_scales_row + step]);
        for (std::size_t i = 0; i < kProductLanes; i += kLanes) {
          const VF factor = hn::Mul(a_factor, hn::LoadU(df, b_factors + i));
          const VF scaled = hn::Mul(
              factor, hn::LoadU(df, chain.data + r * kProductLanes + i));
          const VF sum = from.data == nullptr
                             ? hn::Zero(df)
                             : hn::LoadU(df, from.data + r * from.row + i);
          hn::StoreU(nan_to_quiet(hn::Add(sum, scaled)), df,
                     to.data + r * to.row + i);
        }
      }
      from = to;
    }
  }

  // panel() computes the packed rows and one panel.
  HWY_INLINE void panel(std::size_t row, std::size_t rows, std::size_t column,
                        std::size_t term, std::size_t terms) const {
    const std::size_t columns =
        std::min<std::size_t>(kProductLanes, args.columns - column);
    const std::size_t index = column / kProductLanes;
    // Returns the panel of the terms from `from` on of the lanes of panel `i`.
    const auto panel_of = [&](const std::byte* panels, std::size_t i,
                              std::size_t width, std::size_t from) {
      return panels +
             i * product_packed_bytes(args.terms, args.block_terms, width,
                                      pairs) +
             from / args.block_terms *
                 product_panel_bytes(args.block_terms, width, pairs);
    };
    const std::byte* const panel = panel_of(b, index, kProductLanes, term);
    // Each tile prefetches its part of the panel that comes next.
    const std::byte* const next =
        column + kProductLanes < args.columns
            ? panel_of(b, index + 1, kProductLanes, term)
            : panel_of(b, 0, kProductLanes, term + terms);
    const std::size_t next_step =
        kProductLanes * sizeof(float) / ((rows + kRows - 1) / kRows);
    const std::size_t tile_bytes = next_step * (pairs ? terms / 2 : terms);
    const bool zero = term == 0 && args.first != 0;
    const bool last = term + terms == args.terms && args.last != 0;
    const bool stored = last && direct && columns == kProductLanes;
    const std::byte* sliver = packed;
    for (std::size_t r = 0; r < rows;) {
      std::size_t height = sliver_rows(rows - r), sliver_step = height;
      const float* words = words_of(sliver);
      Ahead ahead{0, next + r / kRows * tile_bytes, next_step};
      if (args.packed_rows != 0) {
        const std::size_t at = first + row + r, lane = at % kMaxProductRows;
        height = std::min(height, sliver_rows(kMaxProductRows - lane));
        sliver_step = kMaxProductRows;
        sliver = panel_of(reinterpret_cast<const std::byte*>(a),
                          at / kMaxProductRows, kMaxProductRows, term);
        words = words_of(sliver) + lane;
        ahead.a = product_packed_bytes(args.terms, args.block_terms,
                                       kMaxProductRows, pairs) /
                  4;
      }
      Element* const result = at(out, out_at, row + r, column);
      Sums to{local, kProductLanes};
      if (sums != nullptr) {
        to.data = sums + index * sums_panel + (row + r) * kProductLanes;
      }
      const Sums from{zero ? nullptr : to.data, kProductLanes};
      const auto add = [&](const auto& target) HWY_ATTR {
        add_words(height, sliver, words, sliver_step, ahead, panel,
                  words_of(panel), terms, pairs, from, target);
      };
      if (args.scale_terms != 0 && terms != 0) {
        add_scaled(height, sliver, words, sliver_step, panel, row + r, column,
                   columns, term, terms, from, to);
      } else if (stored) {
        add(Target<Out>{result, static_cast<std::size_t>(out_at.row),
                        non_temporal});
      } else {
        add(to);
      }
      if (last && !stored) {
        finish<Out>(args, to, height, columns,
                    at(self, self_at, row + r, column), self_at, result, out_at,
                    args.scale_terms != 0 || a_scales == nullptr
                        ? Factors{}
                        : Factors{a_scales + (row + r) * a_scales_row,
                                  a_scales_row, b_scales + column});
      }
      sliver += product_panel_bytes(terms, height, pairs);
      r += height;
    }
  }

  // at() is the address of an element; null if the matrix is.
  template <class T>
  static HWY_INLINE T* at(T* matrix, const ProductSteps& steps, std::size_t row,
                          std::size_t column) {
    if (matrix == nullptr) return nullptr;
    return matrix + static_cast<std::int64_t>(row) * steps.row +
           static_cast<std::int64_t>(column) * steps.column;
  }

  HWY_INLINE void run(std::size_t count) const {
    const std::size_t terms = args.terms;
    for (std::size_t row = 0; row < count; row += args.block_rows) {
      const std::size_t rows =
          std::min<std::size_t>(args.block_rows, count - row);
      std::size_t term = 0;
      do {  // once without terms
        const std::size_t block =
            std::min<std::size_t>(args.block_terms, terms - term);
        if (args.packed_rows == 0) pack_rows(row, rows, term, block);
        for (std::size_t c = 0; c < args.columns; c += kProductLanes) {
          panel(row, rows, c, term, block);
        }
        term += block;
      } while (term < terms);
    }
  }
};

template <class In, class Out>
HWY_INLINE void product(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const ProductArgs*>(arguments);
  const Product<In, Out> product(args, tile);
  product.run(tile.count);
  if (kHasNonTemporalStores && product.non_temporal) hwy::FlushStream();
}

#if HWY_TARGET == HWY_AVX3
// rows_of_words() computes kHeight rows of sums from groups of eight words of a
// whole panel, whose terms are consecutive, without packing them. It
// returns the number of terms; with pairs 0, if the instruction may not be
// used. It reads kVectors vectors of lanes at a time: 2 have enough sums to
// hide the latency of the additions, but memory is faster if 16 lanes are read
// than 32, above all if the lanes are a power of two apart and share places in
// L1.
template <class Format, std::size_t kHeight, std::size_t kVectors>
HWY_INLINE std::size_t rows_of_words(const Source<Format>& x,
                                     const std::byte* sliver, const float* a,
                                     bool pairs, const Sums& to) {
  const DF df;
  const DU du;
  constexpr std::size_t kWords = 8;
  constexpr std::size_t kLine = 16;  // words
  constexpr std::size_t kAhead = (kVectors == 1 ? 4 : 2) * kLine;
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
      if (w % kLine == 0) {  // at the end of the next lanes
        const bool next = w + kAhead >= words;
        const std::size_t from = lane + (next ? kLanesAtOnce : 0);
        const std::size_t ahead = w + kAhead - (next ? words : 0);
        for (std::size_t i = 0; i < kLanesAtOnce; ++i) {
          hwy::Prefetch(x.at(from + i, ahead * kWordTerms<Format>));
        }
      }
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
          if constexpr (kWordTerms<Format> == 1) {
            add(Floats(), w + i, word[i ^ 1]);
          } else if (std::is_same<Format, BFloat16>::value && pairs) {
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
      // One vector of four rows has enough sums to hide their latency.
      const bool from_memory = tile.prefetch_bytes != 0;
      const auto rows =
          height == 1
              ? from_memory ? rows_of_words<In, 1, 1> : rows_of_words<In, 1, 2>
          : height == 2
              ? from_memory ? rows_of_words<In, 2, 1> : rows_of_words<In, 2, 2>
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
      add_words(height, a, words_of(a) + (pairs ? term / 2 : term) * height,
                height, {0, panel, 0}, panel, words_of(panel), block.terms,
                pairs, term == 0 ? Sums{nullptr, kProductLanes} : sums, sums);
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

SWAMP_KERNELS(product_pack, kUpTo32, pack<A>)
SWAMP_KERNELS(product, kSameOrWide, product<A, B>)
SWAMP_KERNELS(product_rows, kSameOrWide, product_rows<A, B>)

#if HWY_TARGET == HWY_AVX3
// dot_has_bits_of_fma() compares the instruction with fma() on numbers that are
// rounded differently in the other order.
bool dot_has_bits_of_fma() {
  const DF df;
  std::uint32_t state = 1;
  for (int i = 0; i < 1000; ++i) {
    std::uint32_t a[kLanes], b[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j) {
      for (std::uint32_t* word : {&a[j], &b[j]}) {
        state = state * 1664525 + 1013904223;  // of Numerical Recipes
        const std::uint32_t first = state >> 16;
        state = state * 1664525 + 1013904223;
        const std::uint32_t bits = first << 16 | state >> 16;
        // Exponents of 120 to 135.
        *word = (bits & 0x87ff87ffu) + 0x3c003c00u;
      }
    }
    const VF x = hn::LoadU(df, reinterpret_cast<const float*>(b));
    VF by_dot = hn::Set(df, 0.7f), by_fma = by_dot;
    for (std::size_t j = 0; j < kLanes; ++j) {
      const VF y = hn::BitCast(df, hn::Set(DU(), a[j]));
      by_dot = PairsByDot::add(y, x, by_dot);
      by_fma = PairsByFma::add(y, x, by_fma);
    }
    if (!hn::AllTrue(df, hn::Eq(by_dot, by_fma))) return false;
  }
  return true;
}
#endif

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE && !defined(__sw_slave__)
namespace swamp::slave {

bool has_bfloat16_pairs(const char* isa) noexcept {
#if (HWY_TARGETS & HWY_AVX3) && !defined(HWY_COMPILE_ONLY_SCALAR)
  static const bool works =
      __builtin_cpu_supports("avx512bf16") && N_AVX3::dot_has_bits_of_fma();
  return std::strcmp(isa, "avx512") == 0 && works;
#else
  (void)isa;
  return false;
#endif
}

bool has_fma(const char* isa) noexcept {
  for (const char* one : {"avx512", "avx2", "neon"}) {
    if (std::strcmp(isa, one) == 0) return true;
  }
  return false;
}

}  // namespace swamp::slave
#endif  // HWY_ONCE
