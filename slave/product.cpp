// The kernels of matrix products, as Goto's and BLIS's: b is packed in panels
// of columns, a in slivers of a few rows, and a tile of the result stays in
// registers while the terms pass. Compiled once per target by Highway.
#include "slave/kernel_table.h"
#include "slave/product_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>

#include "slave/product_pack-inl.h"
#include "slave/product_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

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
  // Of a gathered a: whether it is packed, or read in place, where its rows or
  // its terms are neighbours in memory or single words are taken; the places of
  // words, and the least exponent of pairs.
  enum class Neighbours { packed, rows, terms, words } neighbours =
      Neighbours::packed;
  const std::size_t* places = nullptr;
  std::uint32_t least = 0;

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
                         0) {
    if (args.row_runs.begins == nullptr) return;
    auto* const memory = reinterpret_cast<std::size_t*>(packed);
    packed += product_places_bytes(args.terms);
    places = memory;
    if constexpr (std::is_same<In, Float32>::value) {
      neighbours = neighbours_of_floats(memory);
    } else if constexpr (kMayBePairs<In>) {
      if (pairs && find_pairs(memory, tile.count)) {
        neighbours = Neighbours::terms;
      }
    }
  }

  // for_runs() calls visit(t, place) for the first of each `step` terms.
  template <class Visit>
  HWY_INLINE void for_runs(std::size_t step, const Visit& visit) const {
    const ProductRuns& runs = args.term_runs;
    std::size_t run = args.first_term / runs.length,
                offset = args.first_term % runs.length;
    for (std::size_t t = 0; t < args.terms; t += step, offset += step) {
      if (offset == runs.length) ++run, offset = 0;
      visit(t, runs.begins[run] + offset);
    }
  }
  // has_groups() returns whether each `count` terms are neighbours.
  HWY_INLINE bool has_groups(std::size_t count) const {
    return args.term_runs.length % count == 0 && args.first_term % count == 0 &&
           args.terms % count == 0;
  }

  // neighbours_of_floats() sets `to` to the places of words; those that are
  // only prefetched are in the memory of packed rows.
  HWY_INLINE Neighbours neighbours_of_floats(std::size_t* to) const {
    if (has_groups(2)) {
      for_runs(2, [&](std::size_t t, std::size_t place) {
        to[t / 2] = place * sizeof *a;
      });
      return Neighbours::terms;
    }
    // Of few panels, single words take less time than packing, and than runs of
    // rows that leave a tile nearly empty.
    constexpr std::size_t kFewPanels = 16;
    const std::size_t run = args.row_runs.length;
    const bool is_few = args.columns <= kFewPanels * kProductLanes,
               is_whole = run % kRows == 0 || run >= 2 * kRows;
    if (!is_few && run < kRows) return Neighbours::packed;
    for_runs(1, [&](std::size_t t, std::size_t place) {
      to[place_of(t, args.terms)] = place;
    });
    std::fill_n(to + args.terms, RowsInPlace::kWordsAhead, std::size_t{0});
    return is_few && !is_whole ? Neighbours::words : Neighbours::rows;
  }

  // find_pairs() sets `to` to the places of words, and `least`. It returns
  // false if the pairs of `count` rows are not in memory, or so far apart that
  // finding their least exponent takes long.
  HWY_INLINE bool find_pairs(std::size_t* to, std::size_t count) {
    if (!has_groups(4) || args.terms == 0) return false;
    std::size_t begin = ~std::size_t{0}, end = 0, first_row = begin,
                last_row = 0;
    for_runs(4, [&](std::size_t t, std::size_t place) {
      to[t / 4] = place * sizeof *a;
      begin = std::min(begin, place);
      end = std::max(end, place + 4);
    });
    for (std::size_t r = first; r < first + count; ++r) {
      const std::size_t place = args.row_runs.place(r);
      first_row = std::min(first_row, place);
      last_row = std::max(last_row, place);
    }
    begin += first_row;
    end += last_row;
    if (end - begin > count * args.terms) return false;
    least = least_exponent(a + begin, end - begin);
    return true;
  }

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
      add_words(
          height,
          Packed<In>{exponent_of(sliver), a_words + words * a_step, a_step, 0},
          {panel, 0}, panel, words_of(panel) + words * kProductLanes,
          std::min(most, terms - t), pairs, {nullptr, kProductLanes}, chain);
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
      const Ahead ahead{next + r / kRows * tile_bytes, next_step};
      std::size_t a_ahead = 0;
      if (args.packed_rows != 0) {
        const std::size_t at = first + row + r, lane = at % kMaxProductRows;
        height = std::min(height, sliver_rows(kMaxProductRows - lane));
        sliver_step = kMaxProductRows;
        sliver = panel_of(reinterpret_cast<const std::byte*>(a),
                          at / kMaxProductRows, kMaxProductRows, term);
        words = words_of(sliver) + lane;
        a_ahead = product_packed_bytes(args.terms, args.block_terms,
                                       kMaxProductRows, pairs) /
                  4;
      }
      if (neighbours == Neighbours::rows) {  // of one run
        const std::size_t length = args.row_runs.length,
                          left = length - (first + row + r) % length;
        height = std::min(height, sliver_rows(left));
      }
      Element* const result = at(out, out_at, row + r, column);
      Sums to{local, kProductLanes};
      if (sums != nullptr) {
        to.data = sums + index * sums_panel + (row + r) * kProductLanes;
      }
      const Sums from{zero ? nullptr : to.data, kProductLanes};
      // Inlined: what is passed in memory waits for stores of the tile before.
      const auto add = [&](const auto& target)
                           HWY_ATTR __attribute__((always_inline)) {
        const auto add_of = [&](const auto& left)
                                HWY_ATTR __attribute__((always_inline)) {
          add_words(height, left, ahead, panel, words_of(panel), terms, pairs,
                    from, target);
        };
        const std::size_t at = first + row + r;
        if constexpr (std::is_same<In, Float32>::value || kMayBePairs<In>) {
          if (neighbours == Neighbours::terms) {
            const std::byte* rows_of_a[kRows];
            for (std::size_t i = 0; i < height; ++i) {
              rows_of_a[i] = reinterpret_cast<const std::byte*>(
                  a + args.row_runs.place(at + i));
            }
            return add_of(TermsInPlace<In>{
                least, rows_of_a, places + term / (kMayBePairs<In> ? 4 : 2)});
          }
        }
        if constexpr (std::is_same<In, Float32>::value) {
          if (neighbours == Neighbours::rows) {
            return add_of(
                RowsInPlace{0, a + args.row_runs.place(at), places + term});
          }
          if (neighbours == Neighbours::words) {
            const float* rows_of_a[kRows];
            for (std::size_t i = 0; i < height; ++i) {
              rows_of_a[i] = a + args.row_runs.place(at + i);
            }
            return add_of(WordsInPlace{0, rows_of_a, places + term});
          }
        }
        add_of(Packed<In>{exponent_of(sliver), words, sliver_step, a_ahead});
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
        if (args.packed_rows == 0 && neighbours == Neighbours::packed) {
          pack_rows(row, rows, term, block);
        }
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

}  // namespace

SWAMP_KERNELS(product_pack, kUpTo32, pack<A>)
SWAMP_KERNELS(product, kSameOrWide, product<A, B>)

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

#if (HWY_TARGETS & HWY_AVX3) && !defined(HWY_COMPILE_ONLY_SCALAR)
namespace {

bool has_amx() {
  constexpr unsigned kAmxBfloat16 = 1u << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & kAmxBfloat16) != 0;
}

}  // namespace
#endif

bool has_bfloat16_pairs(const char* isa) noexcept {
#if (HWY_TARGETS & HWY_AVX3) && !defined(HWY_COMPILE_ONLY_SCALAR)
  static std::atomic<int> works{-1};  // -1: not tested yet
  if (works.load(std::memory_order_relaxed) < 0) {
    works.store(__builtin_cpu_supports("avx512bf16") && !has_amx() &&
                    N_AVX3::dot_has_bits_of_fma(),
                std::memory_order_relaxed);
  }
  return std::strcmp(isa, "avx512") == 0 &&
         works.load(std::memory_order_relaxed) == 1;
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
