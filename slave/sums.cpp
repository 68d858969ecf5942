// Sums over rows and over lines, in double or float32, compiled once per target
// by Highway. The elements of a row are added to chains by their column, so
// that every vector width adds in the same order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/sums.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// load_wide() loads kWideLanes elements as doubles.
template <class Format>
HWY_INLINE VD load_wide(const typename Format::Element* at) {
  const DD dd;
  if constexpr (std::is_same_v<Format, Float64>) {
    return hn::LoadU(dd, at);
  } else {
    const hn::Rebind<float, DD> df;
    return hn::PromoteTo(dd, Format::load(df, at));
  }
}

// copy_first() copies the first `count` elements of a vector, and zeros.
template <class D>
HWY_INLINE void copy_first(D d, const hn::TFromD<D>* from, std::size_t count,
                           hn::TFromD<D>* copy) {
#if HWY_TARGET == HWY_AVX3
  hn::StoreU(hn::MaskedLoad(hn::FirstN(d, count), d, from), d, copy);
#else
  (void)d;
  for (std::size_t i = 0; i < hn::MaxLanes(D()); ++i) {
    copy[i] = i < count ? from[i] : hn::TFromD<D>();
  }
#endif
}

// Terms is the terms of a row from some column on. With kBoth those of
// factor_sum are added, too.
template <class Format, RowSumsArgs::Term kTerm, bool kBothSums>
struct Terms {
  using Element = typename Format::Element;
  static constexpr bool kHasFactor =
      kTerm == RowSumsArgs::product || kTerm == RowSumsArgs::loss;
  static constexpr bool kBoth = kBothSums;
  const Element* x;
  const Element* factor;
  double shift, limit;

  HWY_INLINE VD term(VD value, VD by) const {
    const DD dd;
    const VD d = hn::Sub(value, hn::Set(dd, shift));
    if constexpr (kTerm == RowSumsArgs::square) return hn::Mul(d, d);
    if constexpr (kTerm == RowSumsArgs::product) return hn::Mul(d, by);
    if constexpr (kTerm == RowSumsArgs::loss) {
      const VD e = hn::Abs(hn::Sub(d, by));
      const VD most = hn::Set(dd, limit);
      const VD m = hn::IfThenElse(hn::Lt(most, e), most, e);
      return hn::Mul(m, hn::Sub(e, hn::Mul(m, hn::Set(dd, 0.5))));
    }
    return d;
  }
  // add() adds the terms of kWideLanes columns from i on.
  SWAMP_VECTOR_INLINE void add(std::size_t i, VD& sum,
                               VD& factor_sum) const {
    const VD by = kHasFactor ? load_wide<Format>(factor + i) : hn::Zero(DD());
    sum = hn::Add(sum, term(load_wide<Format>(x + i), by));
    if (kBoth) factor_sum = hn::Add(factor_sum, by);
  }
  // add_first() adds those of `count` columns, and 0, which changes no chain.
  SWAMP_VECTOR_INLINE void add_first(std::size_t i, std::size_t count, VD& sum,
                                     VD& factor_sum) const {
    if (count == 0) return;
    const DD dd;
    const hn::Rebind<Element, DD> d;
    Element copy[2][kWideLanes];
    copy_first(d, x + i, count, copy[0]);
    if (kHasFactor) copy_first(d, factor + i, count, copy[1]);
    const VD by = kHasFactor ? load_wide<Format>(copy[1]) : hn::Zero(dd);
    sum = hn::Add(
        sum, hn::IfThenElseZero(hn::FirstN(dd, count),
                                term(load_wide<Format>(copy[0]), by)));
    if (kBoth) factor_sum = hn::Add(factor_sum, by);
  }
};

// Sums is the chains of a row. Its loops are unrolled, because g++ keeps arrays
// in memory if they are accessed in a loop.
template <std::size_t... k>
struct WideSums {
  static constexpr std::size_t kCount = sizeof...(k);
  VD v[kCount];

  // The implicit one is not of the target.
  HWY_INLINE WideSums() {}
  HWY_INLINE void clear() { ((v[k] = hn::Zero(DD())), ...); }
  HWY_INLINE void load(const double* chains) {
    ((v[k] = hn::LoadU(DD(), chains + k * kWideLanes)), ...);
  }
  HWY_INLINE void store(double* chains) const {
    (hn::StoreU(v[k], DD(), chains + k * kWideLanes), ...);
  }
  // sum() adds the chains as a tree.
  HWY_INLINE double sum() {
    add_halves<kCount / 2>();
    return tree_sum(DD(), v[0]);
  }

 private:
  template <std::size_t kHalf>
  HWY_INLINE void add_halves() {
    if constexpr (kHalf != 0) {
      ((k < kHalf ? void(v[k] = hn::Add(v[k], v[(k + kHalf) % kCount]))
                  : void()),
       ...);
      add_halves<kHalf / 2>();
    }
  }
};

// add_terms() adds `count` terms to the sums.
template <class Terms, std::size_t... k>
HWY_INLINE void add_terms(const Terms& terms, std::size_t count,
                          std::size_t ahead, WideSums<k...>& sums,
                          WideSums<k...>& factor_sums) {
  const std::size_t whole = count / kWideChains * kWideChains;
  for (std::size_t i = 0; i < whole; i += kWideChains) {
    prefetch(terms.x + i, kWideChains, ahead);
    if constexpr (Terms::kBoth) prefetch(terms.factor + i, kWideChains, ahead);
    (terms.add(i + k * kWideLanes, sums.v[k], factor_sums.v[k]), ...);
  }
  if (whole == count) return;
  const auto left = [&](std::size_t first) {
    const std::size_t rest = count - whole;
    return rest <= first ? 0 : std::min(rest - first, kWideLanes);
  };
  (terms.add_first(whole + k * kWideLanes, left(k * kWideLanes), sums.v[k],
                   factor_sums.v[k]),
   ...);
}

// NarrowTerms is the same in float32, without a shift.
template <class Format, bool kIsLoss>
struct NarrowTerms {
  using Element = typename Format::Element;
  const Element* x;
  const Element* factor;
  float limit;

  SWAMP_VECTOR_INLINE VF operator()(std::size_t i) const {
    const DF df;
    const VF value = Format::load(df, x + i);
    if constexpr (!kIsLoss) return value;
    const VF e = hn::Abs(hn::Sub(value, Format::load(df, factor + i)));
    const VF most = hn::Set(df, limit);
    const VF m = hn::IfThenElse(hn::Lt(most, e), most, e);
    return hn::Mul(m, hn::Sub(e, hn::Mul(m, hn::Set(df, 0.5f))));
  }
};

template <bool kIsLoss, class Terms, std::size_t... k>
HWY_INLINE void add_narrow_terms(const Terms& terms, std::size_t count,
                                 std::size_t ahead, float* chains,
                                 std::index_sequence<k...>) {
  const DF df;
  const std::size_t whole = count / kChains * kChains;
  VF sums[] = {hn::LoadU(df, chains + k * kLanes)...};
  for (std::size_t i = 0; i < whole; i += kChains) {
    prefetch(terms.x + i, kChains, ahead);
    if constexpr (kIsLoss) prefetch(terms.factor + i, kChains, ahead);
    ((sums[k] = hn::Add(sums[k], terms(i + k * kLanes))), ...);
  }
  if (whole < count) {
    // Other lanes add 0, which changes no chain.
    const std::size_t rest = count - whole;
    using Element =
        std::remove_const_t<std::remove_pointer_t<decltype(terms.x)>>;
    Element x[kChains] = {}, factor[kChains] = {};
    std::memcpy(x, terms.x + whole, rest * sizeof(Element));
    if constexpr (kIsLoss) {
      std::memcpy(factor, terms.factor + whole, rest * sizeof(Element));
    }
    const Terms last{x, factor, terms.limit};
    ((sums[k] = hn::Add(
          sums[k],
          hn::IfThenElseZero(hn::FirstN(df, rest - std::min(rest, k * kLanes)),
                             last(k * kLanes)))),
     ...);
  }
  (hn::StoreU(sums[k], df, chains + k * kLanes), ...);
}

template <class Format, bool kIsLoss>
HWY_NOINLINE void sum_narrow_rows(const RowSumsArgs& args, const Tile& tile) {
  using At = RowSumsOperand;
  using Element = typename Format::Element;
  const RowPart part = part_of_rows(tile, args.columns);
  const auto* const x = operand<Element>(tile, At::x);
  const auto* const factor = operand<Element>(tile, At::factor);
  auto* const sum = operand<double>(tile, At::sum);
  auto* const chains = reinterpret_cast<float*>(tile.state);
  for (std::size_t i = 0; i < part.rows; ++i) {
    if (part.first == 0) std::memset(chains, 0, kChains * sizeof *chains);
    const std::size_t at = i * part.columns;
    add_narrow_terms<kIsLoss>(
        NarrowTerms<Format, kIsLoss>{x + at, kIsLoss ? factor + at : nullptr,
                                     args.limit},
        part.columns, tile.prefetch_bytes, chains,
        std::make_index_sequence<kVectors>());
    if (part.is_last) {
      sum[i] = static_cast<double>(tree_sum(DF(), chains, kChains));
    }
  }
}

// Extremes finds the largest and the smallest of numbers of 16 bits, as
// integers that have their order; those of nan are beyond those of inf.
struct Extremes {
  using D = hn::ScalableTag<std::int16_t>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kStep = hn::MaxLanes(D());
  HWY_ALIGN std::int16_t largest[kStep], smallest[kStep];

  // order() is its own inverse: it reverses the order of negative numbers.
  static HWY_INLINE V order(V bits) {
    const D d;
    return hn::Xor(bits, hn::And(hn::ShiftRight<15>(bits),
                                 hn::Set(d, std::int16_t{0x7fff})));
  }
  static std::int16_t order(std::int16_t bits) {
    return static_cast<std::int16_t>(bits < 0 ? bits ^ 0x7fff : bits);
  }
  void reset() {
    for (std::size_t k = 0; k < kStep; ++k) {
      largest[k] = std::numeric_limits<std::int16_t>::min();
      smallest[k] = std::numeric_limits<std::int16_t>::max();
    }
  }
  HWY_INLINE void add(const std::uint16_t* x, std::size_t count,
                      std::size_t ahead) {
    const D d;
    constexpr std::size_t kBoth = 2 * kStep;
    V most = hn::Load(d, largest), least = hn::Load(d, smallest);
    V most_2 = most, least_2 = least;
    const auto add_both = [&](const void* from) HWY_ATTR {
      const auto* const at = static_cast<const std::int16_t*>(from);
      const V a = order(hn::LoadU(d, at)), b = order(hn::LoadU(d, at + kStep));
      most = hn::Max(most, a), least = hn::Min(least, a);
      most_2 = hn::Max(most_2, b), least_2 = hn::Min(least_2, b);
    };
    std::size_t i = 0;
    for (; i + kBoth <= count; i += kBoth) {
      prefetch(x + i, kBoth, ahead);
      add_both(x + i);
    }
    if (i < count) {
      std::uint16_t rest[kBoth];
      std::fill(rest, rest + kBoth, x[i]);
      std::memcpy(rest, x + i, (count - i) * sizeof *x);
      add_both(rest);
    }
    hn::Store(hn::Max(most, most_2), d, largest);
    hn::Store(hn::Min(least, least_2), d, smallest);
  }
  template <class Format>
  HWY_INLINE double found(bool is_largest) const {
    const D d;
    const std::int16_t most =
                           hn::GetLane(hn::MaxOfLanes(d, hn::Load(d, largest))),
                       least = hn::GetLane(
                           hn::MinOfLanes(d, hn::Load(d, smallest)));
    const auto infinity = static_cast<std::int16_t>(Format::kNonfinite);
    if (most > infinity || least < order(std::int16_t(infinity ^ -0x8000))) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return static_cast<double>(Format::widen(
        static_cast<std::uint16_t>(order(is_largest ? most : least))));
  }
};

template <class Format>
HWY_NOINLINE void find_extremes(const RowSumsArgs& args, const Tile& tile) {
  using At = RowSumsOperand;
  const RowPart part = part_of_rows(tile, args.columns);
  const auto* const x = operand<std::uint16_t>(tile, At::x);
  auto* const extreme = operand<double>(tile, At::sum);
  Extremes of;
  static_assert(sizeof(RowSumsState) >= sizeof of);
  for (std::size_t i = 0; i < part.rows; ++i) {
    if (part.first == 0) {
      of.reset();
    } else {
      std::memcpy(&of, tile.state, sizeof of);
    }
    of.add(x + i * part.columns, part.columns, tile.prefetch_bytes);
    if (part.is_last) {
      extreme[i] = of.found<Format>(args.term == RowSumsArgs::largest);
    } else {
      std::memcpy(tile.state, &of, sizeof of);
    }
  }
}

template <class Format, RowSumsArgs::Term kTerm, bool kBoth = false,
          std::size_t... k>
HWY_NOINLINE void sum_rows(const RowSumsArgs& args, const Tile& tile,
                           std::index_sequence<k...>) {
  using At = RowSumsOperand;
  using Element = typename Format::Element;
  const RowPart part = part_of_rows(tile, args.columns);
  const auto* const x = operand<Element>(tile, At::x);
  const auto* const factor = operand<Element>(tile, At::factor);
  const auto* const shift = operand<float>(tile, At::shift);
  auto* const sum = operand<double>(tile, At::sum);
  auto* const factor_sum = operand<double>(tile, At::factor_sum);
  auto& state = *static_cast<RowSumsState*>(tile.state);
  for (std::size_t i = 0; i < part.rows; ++i) {
    WideSums<k...> sums, factor_sums;
    sums.clear();
    factor_sums.clear();
    if (part.first != 0) {
      sums.load(state.chains);
      if (kBoth) factor_sums.load(state.factor_chains);
    }
    const std::size_t at = i * part.columns;
    const Terms<Format, kTerm, kBoth> terms{
        x + at, factor == nullptr ? nullptr : factor + at,
        shift == nullptr ? 0 : static_cast<double>(shift[i]),
        static_cast<double>(args.limit)};
    add_terms(terms, part.columns, tile.prefetch_bytes, sums, factor_sums);
    if (part.is_last) {
      sum[i] = sums.sum();
      if (kBoth) factor_sum[i] = factor_sums.sum();
    } else {
      sums.store(state.chains);
      if (kBoth) factor_sums.store(state.factor_chains);
    }
  }
}

template <class Format>
HWY_INLINE void row_sums(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const RowSumsArgs*>(arguments);
  if constexpr (sizeof(typename Format::Element) == 2) {
    switch (args.term) {
      case RowSumsArgs::narrow_plain:
        return sum_narrow_rows<Format, false>(args, tile);
      case RowSumsArgs::narrow_loss:
        return sum_narrow_rows<Format, true>(args, tile);
      case RowSumsArgs::largest:
      case RowSumsArgs::smallest:
        return find_extremes<Format>(args, tile);
      default:
        break;
    }
  }
  constexpr std::make_index_sequence<kWideChains / kWideLanes> kSums;
  switch (args.term) {
    case RowSumsArgs::plain:
      return sum_rows<Format, RowSumsArgs::plain>(args, tile, kSums);
    case RowSumsArgs::square:
      return sum_rows<Format, RowSumsArgs::square>(args, tile, kSums);
    case RowSumsArgs::product:
      if (tile.operands[RowSumsOperand::factor_sum] != nullptr) {
        return sum_rows<Format, RowSumsArgs::product, true>(args, tile, kSums);
      }
      return sum_rows<Format, RowSumsArgs::product>(args, tile, kSums);
    default:
      return sum_rows<Format, RowSumsArgs::loss>(args, tile, kSums);
  }
}

// sum_columns() adds the lines of kSums vectors of columns. Lines lie so far
// apart that the CPU does not prefetch them.
template <class Format, class Sum, std::size_t kSums>
HWY_INLINE void sum_columns(const typename Format::Element* x,
                            std::size_t lines, std::size_t line_step,
                            typename Sum::Element* sums) {
  constexpr std::size_t kAhead = 4;
  constexpr std::size_t kCount = kSums * kWideLanes;
  const DD dd;
  VD sum[kSums];
  for (VD& one : sum) one = hn::Zero(dd);
  for (std::size_t line = 0; line < lines; ++line, x += line_step) {
    for (std::size_t k = 0; k < kCount; k += 64 / sizeof *x) {
      hwy::Prefetch(x + kAhead * line_step + k);
    }
    for (std::size_t k = 0; k < kSums; ++k) {
      sum[k] = hn::Add(sum[k], load_wide<Format>(x + k * kWideLanes));
    }
  }
  // DemoteTo() of some targets makes the largest number of inf.
  HWY_ALIGN double all[kCount];
  for (std::size_t k = 0; k < kSums; ++k) {
    hn::Store(sum[k], dd, all + k * kWideLanes);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    sums[i] = static_cast<typename Sum::Element>(all[i]);
  }
}

template <class Format, class Sum>
HWY_INLINE void column_sums(const void*, const Tile& tile, Result&) {
  using At = ColumnSumsOperand;
  using Element = typename Format::Element;
  const Operand& layout = tile.layout[At::x];
  const std::size_t lines = layout.lines();
  const std::size_t line_step = layout.line_step / sizeof(Element);
  const auto* x = operand<const Element>(tile, At::x);
  auto* sums = operand<typename Sum::Element>(tile, At::sum);
  std::size_t i = 0;
  constexpr std::size_t kSums = 16;
  for (; i + kSums * kWideLanes <= tile.count; i += kSums * kWideLanes) {
    sum_columns<Format, Sum, kSums>(x + i, lines, line_step, sums + i);
  }
  for (; i + kWideLanes <= tile.count; i += kWideLanes) {
    sum_columns<Format, Sum, 1>(x + i, lines, line_step, sums + i);
  }
  for (; i < tile.count; ++i) {
    double sum = 0;
    for (std::size_t line = 0; line < lines; ++line) {
      sum += static_cast<double>(Format::widen(x[line * line_step + i]));
    }
    sums[i] = static_cast<typename Sum::Element>(sum);
  }
}

// tree_of_chains() adds kWideChains chains, which are `step` doubles apart, as
// a tree.
template <std::size_t kCount = 1, class D>
HWY_INLINE hn::Vec<D> tree_of_chains(D d, const double* chains,
                                     std::size_t step) {
  if constexpr (kCount == kWideChains) {
    return hn::LoadU(d, chains);
  } else {
    return hn::Add(
        tree_of_chains<2 * kCount>(d, chains, step),
        tree_of_chains<2 * kCount>(d, chains + kCount * step, step));
  }
}

// sum_block() adds the lines of at most args.block columns; the chains of a
// column are args.block doubles apart.
template <class Format, RowSumsArgs::Term kTerm>
HWY_INLINE void sum_block(const ChannelSumsArgs& args, const Tile& tile,
                          std::size_t column, std::size_t count) {
  using At = ChannelSumsOperand;
  using Element = typename Format::Element;
  constexpr bool kHasFactor = kTerm == RowSumsArgs::product;
  constexpr std::size_t kAhead = 4;
  const DD dd;
  const auto step_of = [&](int s) {
    return tile.layout[s].line_step / sizeof(Element);
  };
  const std::size_t lines = tile.layout[At::x].lines();
  const auto* x = operand<const Element>(tile, At::x) + column;
  const auto* factor = operand<const Element>(tile, At::factor);
  if (kHasFactor) factor += column;
  const auto* const shifts = operand<const float>(tile, At::shift);
  auto* const chains = static_cast<double*>(tile.scratch);
  auto* const factor_chains = chains + kWideChains * args.block;
  auto* const wide_shifts = factor_chains + kWideChains * args.block;
  for (std::size_t k = 0; k < count; ++k) {
    wide_shifts[k] =
        shifts == nullptr ? 0 : static_cast<double>(shifts[column + k]);
  }
  // Chains without lines are 0.
  const std::size_t begun = std::min(lines, kWideChains);
  for (double* const all : {chains, factor_chains}) {
    if (!kHasFactor && all == factor_chains) break;
    std::fill(all + begun * args.block, all + kWideChains * args.block, 0.0);
  }
  const std::size_t whole = count / kWideLanes * kWideLanes;
  for (std::size_t line = 0; line < lines; ++line) {
    const std::size_t chain = line % kWideChains * args.block;
    double* const sums = chains + chain;
    double* const factor_sums = factor_chains + chain;
    for (std::size_t k = 0; k < count; k += 64 / sizeof *x) {
      hwy::Prefetch(x + kAhead * step_of(At::x) + k);
      if (kHasFactor) {
        hwy::Prefetch(factor + kAhead * step_of(At::factor) + k);
      }
    }
    const bool begins = line < kWideChains;
    const auto add = [&](auto d, std::size_t k, auto value, auto by) HWY_ATTR {
      const auto add_to = [&](double* to, auto addend) HWY_ATTR {
        const auto before = begins ? hn::Zero(d) : hn::LoadU(d, to + k);
        hn::StoreU(hn::Add(before, addend), d, to + k);
      };
      const auto rest = hn::Sub(value, hn::LoadU(d, wide_shifts + k));
      const auto term = kTerm == RowSumsArgs::square ? hn::Mul(rest, rest)
                        : kHasFactor                 ? hn::Mul(rest, by)
                                                     : rest;
      add_to(sums, term);
      if (kHasFactor) add_to(factor_sums, by);
    };
    for (std::size_t k = 0; k < whole; k += kWideLanes) {
      add(dd, k, load_wide<Format>(x + k),
          kHasFactor ? load_wide<Format>(factor + k) : hn::Zero(dd));
    }
    const hn::CappedTag<double, 1> d1;
    const auto one = [&](const Element* at) HWY_ATTR {
      return hn::Set(d1, static_cast<double>(Format::widen(*at)));
    };
    for (std::size_t k = whole; k < count; ++k) {
      add(d1, k, one(x + k), kHasFactor ? one(factor + k) : hn::Zero(d1));
    }
    x += step_of(At::x);
    if (kHasFactor) factor += step_of(At::factor);
  }
  const auto store = [&](double* numbers, int s) HWY_ATTR {
    auto* const to = operand<double>(tile, s);
    if (to == nullptr) return;
    const auto add_chains = [&](auto d, std::size_t k) HWY_ATTR {
      hn::StoreU(tree_of_chains(d, numbers + k, args.block), d,
                 to + column + k);
    };
    for (std::size_t k = 0; k < whole; k += kWideLanes) add_chains(dd, k);
    const hn::CappedTag<double, 1> d1;
    for (std::size_t k = whole; k < count; ++k) add_chains(d1, k);
  };
  store(chains, At::sum);
  if (kHasFactor) store(factor_chains, At::factor_sum);
}

template <class Format, RowSumsArgs::Term kTerm>
HWY_NOINLINE void sum_channels(const ChannelSumsArgs& args, const Tile& tile) {
  for (std::size_t i = 0; i < tile.count; i += args.block) {
    sum_block<Format, kTerm>(args, tile, i,
                             std::min<std::size_t>(args.block, tile.count - i));
  }
}

template <class Format>
HWY_INLINE void channel_sums(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const ChannelSumsArgs*>(arguments);
  switch (args.term) {
    case RowSumsArgs::square:
      return sum_channels<Format, RowSumsArgs::square>(args, tile);
    case RowSumsArgs::product:
      return sum_channels<Format, RowSumsArgs::product>(args, tile);
    default:
      return sum_channels<Format, RowSumsArgs::plain>(args, tile);
  }
}

}  // namespace

SWAMP_KERNELS(channel_sums, kUpTo32, channel_sums<A>)
SWAMP_KERNELS(row_sums, kUpTo64, row_sums<A>)
SWAMP_KERNELS(column_sums, kSums, column_sums<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
