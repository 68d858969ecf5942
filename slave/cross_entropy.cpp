// The cross-entropy kernels, compiled once per target by Highway. Forward reads
// each chunk for its maximum, the sum of the exponentials and, with label
// smoothing, the weighted sum of the logits, while it prefetches the next
// chunk; the loss is computed from these parts in double. Of a row in pieces,
// Pass::map has the weighted sum, and is omitted without weights. Backward
// needs only LogSumExp, so it has no Pass::sum.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/cross_entropy.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// Weighted is a row with the weights of its columns.
template <class Format>
struct Weighted {
  using Element = typename Format::Element;
  struct Copy {
    typename Plain<Format>::Copy row;
    typename Plain<Float32>::Copy weight;
  };
  static constexpr bool kWeighted = true;
  Plain<Format> row;
  Plain<Float32> weight;

  HWY_INLINE VF operator()(std::size_t i) const { return row(i); }
  HWY_INLINE VF weigh(std::size_t i, VF value) const {
    return hn::Mul(value, weight(i));
  }
  HWY_INLINE Weighted tail(std::size_t i, std::size_t count, Copy& copy) const {
    return {row.tail(i, count, copy.row), weight.tail(i, count, copy.weight)};
  }
  HWY_INLINE Weighted from(std::size_t i) const {
    return {{row.data + i}, {weight.data + i}};
  }
};

// Unweighted has the weight 1 for all columns.
template <class Format>
struct Unweighted : Plain<Format> {
  using Copy = typename Plain<Format>::Copy;
  static constexpr bool kWeighted = false;

  HWY_INLINE VF weigh(std::size_t, VF value) const { return value; }
  HWY_INLINE Unweighted tail(std::size_t i, std::size_t count,
                             Copy& copy) const {
    return {Plain<Format>::tail(i, count, copy)};
  }
  HWY_INLINE Unweighted from(std::size_t i) const { return {{this->data + i}}; }
};

template <class Format>
HWY_INLINE const typename Format::Element* data_of(
    const Weighted<Format>& source) {
  return source.row.data;
}
template <class Format>
HWY_INLINE const typename Format::Element* data_of(
    const Unweighted<Format>& source) {
  return source.data;
}

template <class Format>
HWY_INLINE float weigh_one(const Weighted<Format>& source, std::size_t i,
                           float value) {
  return value * source.weight.data[i];
}
template <class Format>
HWY_INLINE float weigh_one(const Unweighted<Format>&, std::size_t,
                           float value) {
  return value;
}

// WeightedSums adds the weighted differences from the shift, and the weights.
template <class Source, bool kTail>
struct WeightedSums {
  Source source;
  VF shift;

  HWY_INLINE void operator()(std::size_t i, VF& sum_x, VF& weight) const {
    sum_x = hn::Add(sum_x, source.weigh(i, hn::Sub(source(i), shift)));
    weight = hn::Add(weight, source.weight(i));
  }
};

template <class Source, bool kTail>
struct ExpSumAndSum {
  Source source;
  VF shift;
  const std::uint8_t* next;

  HWY_INLINE VF argument(std::size_t i) const {
    return hn::Sub(source(i), shift);
  }
  HWY_INLINE void finish(std::size_t i, VF e, VF& sum, VF& sum_x) const {
    if (next != nullptr) {
      hwy::Prefetch(next + i * sizeof(typename Source::Element));
    }
    sum = hn::Add(sum, e);
    sum_x = hn::Add(sum_x, argument(i));
  }
  HWY_INLINE void operator()(std::size_t i, VF& sum, VF& sum_x) const {
    finish(i, exp_nonpositive(DF(), argument(i)), sum, sum_x);
  }
};

template <class Source>
struct Backward {
  Source source;
  VF high, low, a, c, gradient;

  HWY_INLINE VF argument(std::size_t i) const {
    const auto log_p = hn::Sub(hn::Sub(source(i), high), low);
    return hn::IfThenZeroElse(hn::Gt(log_p, hn::Zero(DF())), log_p);
  }
  HWY_INLINE VF finish(std::size_t i, VF p) const {
    return hn::Mul(gradient, hn::Sub(hn::Mul(p, a), source.weigh(i, c)));
  }
  HWY_INLINE VF operator()(std::size_t i) const {
    return finish(i, exp_nonpositive(DF(), argument(i)));
  }
};

// chunk_of() is the CrossEntropyChunk of `count` columns. `next` is prefetched
// if it is not null.
template <class Source>
HWY_NOINLINE CrossEntropyChunk chunk_of(const Source& source, std::size_t count,
                                        bool with_sum, const void* next_chunk) {
  const float max = largest(source, count);
  const auto shift = hn::Set(DF(), chunk_shift(max));
  const auto* next = static_cast<const std::uint8_t*>(next_chunk);
  float sum, sum_x = 0, weight = 0;
  if (with_sum && !Source::kWeighted) {
    Chains<2> sums(0.0f);
    accumulate<ExpSumAndSum>(source, count, sums, shift, next);
    sum = sums.sum(0);
    sum_x = sums.sum(1);
    weight = static_cast<float>(count);
  } else {
    Chains<1> sums(0.0f);
    accumulate<ExpSum>(source, count, sums, shift, next);
    sum = sums.sum(0);
  }
  if constexpr (Source::kWeighted) {
    if (with_sum) {
      Chains<2> sums(0.0f);
      accumulate<WeightedSums>(source, count, sums, shift);
      sum_x = sums.sum(0);
      weight = sums.sum(1);
    }
  }
  return {{sum == sum ? max : sum, sum}, sum_x, weight};
}

// sum_chunks() sets the chunks of `columns` columns. If `prefetch_next`, the
// columns of the next row are prefetched, which are as many.
template <class Source>
HWY_NOINLINE void sum_chunks(const Source& source, std::size_t columns,
                             bool with_sum, bool prefetch_next,
                             CrossEntropyChunk* chunk) {
  for (std::size_t at = 0; at < columns; at += kChunkColumns) {
    *chunk++ = chunk_of(
        source.from(at), std::min(kChunkColumns, columns - at), with_sum,
        prefetch_next ? data_of(source.from(at + kChunkColumns)) : nullptr);
  }
}

// add_weighted() adds a piece to sum_x and weight of its chunks.
template <class Format>
HWY_NOINLINE void add_weighted(const Weighted<Format>& source,
                               const RowPart& part, std::size_t columns,
                               CrossEntropyState& state) {
  const auto visit = [&](std::size_t c, std::size_t at,
                         std::size_t count) HWY_ATTR {
    CrossEntropyChunk& chunk = state.chunks()[c];
    if ((part.first + at) % kChunkColumns == 0) {
      state.x.clear();
      state.weight.clear();
    }
    Chains<2> sums(0.0f);
    sums.load(0, state.x);
    sums.load(1, state.weight);
    accumulate<WeightedSums>(source.from(at), count, sums,
                             hn::Set(DF(), chunk_shift(chunk.exp.max)));
    sums.store(0, state.x);
    sums.store(1, state.weight);
    if (!ends_chunk(part.first + at + count, columns)) return;
    chunk.sum_x = state.x.total();
    chunk.weight = state.weight.total();
  };
  for_each_chunk(part.first, part.columns, visit);
}

// finish_row() writes the results of row i of a tile.
HWY_INLINE void finish_row(const CrossEntropyArgs& args, const Tile& tile,
                           std::size_t i, CrossEntropyState& state) {
  using At = CrossEntropyOperand;
  CrossEntropyParts parts =
      combine_chunks(state.chunks(), chunks_of(args.columns));
  parts.target_x = state.target_x;
  if (args.gives_parts != 0) {
    operand<CrossEntropyParts>(tile, At::loss)[i] = parts;
    return;
  }
  const double log_sum = log_positive(parts.sum);
  const LogSumExp lse = log_sum_exp(parts.max, log_sum);
  operand<float>(tile, At::high)[i] = lse.high;
  auto* low = operand<float>(tile, At::low);
  if (low != nullptr) low[i] = lse.low;
  auto* loss = operand<float>(tile, At::loss);
  if (loss == nullptr) return;
  const bool ignored =
      operand<const std::int64_t>(tile, At::target)[i] == args.ignore_index;
  loss[i] = ignored
                ? 0.0f
                : cross_entropy_loss(args, parts, log_sum, state.target_weight);
}

// Of rows without a target: beyond all columns.
constexpr std::uint64_t kNoColumn = ~std::uint64_t{0};

template <class Format>
HWY_INLINE void cross_entropy(const void* arguments, const Tile& tile,
                              Result&) {
  using At = CrossEntropyOperand;
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const RowPart part = part_of_rows(tile, args.columns);
  const auto* weight = operand<const float>(tile, At::weight);
  const auto* targets = operand<const std::int64_t>(tile, At::target);
  const bool with_sum = args.uniform != 0;
  const bool prefetch_next = tile.prefetch_bytes != 0;
  auto& state = *static_cast<CrossEntropyState*>(tile.state);
  CrossEntropyChunk* const chunks = state.chunks() + part.first / kChunkColumns;
  for (std::size_t i = 0; i < part.rows; ++i) {
    const auto* x =
        operand<const typename Format::Element>(tile, At::x) + i * part.columns;
    const std::uint64_t column =
        targets == nullptr ? kNoColumn
                           : target_column(args, targets[i], part.first);
    const Weighted<Format> weighted{{x}, {weight}};
    if (part.sums) {
      if (part.first == 0) {
        state.target_x = 0;
        state.target_weight = 1;
      }
      if (column < part.columns) state.target_x = Format::widen(x[column]);
      if (weight != nullptr) {
        sum_chunks(weighted, part.columns, with_sum, prefetch_next, chunks);
      } else {
        sum_chunks(Unweighted<Format>{{x}}, part.columns, with_sum,
                   prefetch_next, chunks);
      }
    } else if (with_sum) {
      add_weighted(weighted, part, args.columns, state);
    }
    if (part.maps && weight != nullptr && column < part.columns) {
      state.target_weight = weight[column];
    }
    if (part.is_last) finish_row(args, tile, i, state);
  }
}

// backward_piece() writes `count` columns; the target is number `column`, if
// that is one of them.
template <class Format, class Source>
HWY_NOINLINE void backward_piece(const CrossEntropyArgs& args,
                                 const Source& source,
                                 const CrossEntropyRow& row,
                                 std::uint64_t column, std::size_t count,
                                 typename Format::Element* dx) {
  const DF df;
  const CrossEntropyFactors factors = cross_entropy_factors(args, row);
  // Before it is overwritten.
  const float x = column < count ? Format::widen(data_of(source)[column]) : 0;
  map<Format, false, Backward>(
      source, count, dx, false, hn::Set(df, row.lse.high),
      hn::Set(df, row.lse.low), hn::Set(df, factors.a), hn::Set(df, factors.c),
      hn::Set(df, row.gradient));
  if (column < count) {
    const float log_p = (x - row.lse.high) - row.lse.low;
    const float p = slave::exp_nonpositive(log_p > 0 ? 0.0f : log_p);
    const float value = row.gradient * ((p * factors.a - factors.b) -
                                        weigh_one(source, column, factors.c));
    typename Format::Element result[kLanes];
    store_vector<Format, false>(hn::Set(df, value), result);
    dx[column] = result[0];
  }
}

template <class Format>
HWY_INLINE void backward(const void* arguments, const Tile& tile, Result&) {
  using At = CrossEntropyBackwardOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const RowPart part = part_of_rows(tile, args.columns);
  const auto* weight = operand<const float>(tile, At::weight);
  const auto* targets = operand<const std::int64_t>(tile, At::target);
  for (std::size_t i = 0; i < part.rows; ++i) {
    const auto* x = operand<const Element>(tile, At::x) + i * part.columns;
    auto* dx = operand<Element>(tile, At::dx) + i * part.columns;
    if (targets != nullptr && targets[i] == args.ignore_index) {
      std::memset(dx, 0, part.columns * sizeof *dx);
      continue;
    }
    const CrossEntropyRow& row =
        operand<const CrossEntropyRow>(tile, At::row)[i];
    const std::uint64_t column =
        targets == nullptr ? kNoColumn
                           : target_column(args, targets[i], part.first);
    if (weight == nullptr) {
      backward_piece<Format>(args, Unweighted<Format>{{x}}, row, column,
                             part.columns, dx);
    } else {
      backward_piece<Format>(args, Weighted<Format>{{x}, {weight}}, row, column,
                             part.columns, dx);
    }
  }
}

}  // namespace

SWAMP_KERNELS(cross_entropy, kUpTo32, cross_entropy<A>)
SWAMP_KERNELS(cross_entropy_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
