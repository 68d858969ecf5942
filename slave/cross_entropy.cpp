// The cross-entropy kernels, compiled once per target by Highway. Forward reads
// each chunk for its maximum, the sum of the exponentials and, with label
// smoothing, the weighted sum of the logits, while it prefetches the next
// chunk; the loss is computed from these parts in double. Backward needs only
// LogSumExp, so it takes any piece of a row.
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

// parts_of() is the parts of a row.
template <class Format, class Source>
HWY_NOINLINE CrossEntropyParts parts_of(const CrossEntropyArgs& args,
                                        const Source& source,
                                        std::int64_t target,
                                        bool prefetch_next) {
  CrossEntropyChunk chunks[kMaxRowChunks];
  std::size_t count = 0;
  for (std::size_t at = 0; at < args.columns; at += kChunkColumns) {
    const auto& chunk = source.from(at);
    chunks[count++] = chunk_of(
        chunk, std::min<std::size_t>(kChunkColumns, args.columns - at),
        args.uniform != 0,
        prefetch_next ? data_of(source.from(at + kChunkColumns)) : nullptr);
  }
  CrossEntropyParts parts = combine_chunks(chunks, count);
  const std::uint64_t column =
      static_cast<std::uint64_t>(target - args.first_class);
  if (column < args.columns) {
    parts.target_x = Format::widen(data_of(source)[column]);
  }
  return parts;
}

// weight_of() is the weight of a target, which another rank may have.
HWY_INLINE float weight_of(const CrossEntropyArgs& args, const float* weight,
                           std::int64_t target) {
  const std::uint64_t column =
      static_cast<std::uint64_t>(target - args.first_class);
  return weight == nullptr || column >= args.columns ? 1.0f : weight[column];
}

template <class Format>
HWY_INLINE void cross_entropy_rows(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const auto* x = operand<const typename Format::Element>(tile, 0);
  const auto* weight = operand<const float>(tile, 2);
  auto* loss = operand<float>(tile, 3);
  auto* high = operand<float>(tile, 4);
  auto* low = operand<float>(tile, 5);
  const bool prefetch_next = tile.prefetch_bytes != 0;
  for (std::size_t i = 0; i < tile.count; ++i, x += args.columns) {
    const std::int64_t target = target_of(args, tile.operands[1], i);
    const CrossEntropyParts parts =
        weight == nullptr
            ? parts_of<Format>(args, Unweighted<Format>{{x}}, target,
                               prefetch_next)
            : parts_of<Format>(args, Weighted<Format>{{x}, {weight}}, target,
                               prefetch_next);
    const double log_sum = log_positive(parts.sum);
    const LogSumExp lse = log_sum_exp(parts.max, log_sum);
    high[i] = lse.high;
    if (low != nullptr) low[i] = lse.low;
    loss[i] = target == args.ignore_index
                  ? 0.0f
                  : cross_entropy_loss(args, parts, log_sum,
                                       weight_of(args, weight, target));
  }
}

template <class Format>
HWY_INLINE void cross_entropy_sum(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const auto* x = operand<const typename Format::Element>(tile, 0);
  const auto* weight = operand<const float>(tile, 2);
  if (weight != nullptr) {
    auto& record = *partial_result<CrossEntropySums>(tile);
    Chains<2> sums(0.0f);
    std::memcpy(sums.chain[0], record.x.chains, sizeof record.x);
    std::memcpy(sums.chain[1], record.weight.chains, sizeof record.weight);
    accumulate<WeightedSums>(
        Weighted<Format>{{x}, {weight}}, tile.count, sums,
        hn::Set(DF(), chunk_shift(operand<const SoftmaxChunk>(tile, 1)->max)));
    std::memcpy(record.x.chains, sums.chain[0], sizeof record.x);
    std::memcpy(record.weight.chains, sums.chain[1], sizeof record.weight);
    return;
  }
  auto* chunk = partial_result<CrossEntropyChunk>(tile);
  for (std::size_t at = 0; at < tile.count; at += kChunkColumns, ++chunk) {
    *chunk = chunk_of(Unweighted<Format>{{x + at}},
                      std::min(kChunkColumns, tile.count - at),
                      args.uniform != 0, nullptr);
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

// backward_row() writes `count` columns from `first` of row i of a tile.
template <class Format>
HWY_INLINE void backward_row(const CrossEntropyArgs& args, const Tile& tile,
                             std::size_t i, std::size_t first,
                             std::size_t count,
                             const typename Format::Element* x,
                             typename Format::Element* dx) {
  const std::int64_t target = target_of(args, tile.operands[1], i);
  if (target == args.ignore_index) {
    std::memset(dx, 0, count * sizeof *dx);
    return;
  }
  const CrossEntropyRow& row = operand<const CrossEntropyRow>(tile, 2)[i];
  const auto* weight = operand<const float>(tile, 3);
  const std::uint64_t column =
      static_cast<std::uint64_t>(target - args.first_class) - first;
  if (weight == nullptr) {
    backward_piece<Format>(args, Unweighted<Format>{{x}}, row, column, count,
                           dx);
  } else {
    backward_piece<Format>(args, Weighted<Format>{{x}, {weight}}, row, column,
                           count, dx);
  }
}

template <class Format>
HWY_INLINE void backward_rows(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const auto* x = operand<const Element>(tile, 0);
  auto* dx = operand<Element>(tile, 4);
  for (std::size_t i = 0; i < tile.count; ++i) {
    backward_row<Format>(args, tile, i, 0, args.columns, x, dx);
    x += args.columns;
    dx += args.columns;
  }
}

template <class Format>
HWY_INLINE void backward_map(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  backward_row<Format>(
      *static_cast<const CrossEntropyArgs*>(arguments), tile, 0, tile.first,
      tile.count, operand<const Element>(tile, 0), operand<Element>(tile, 4));
}

template <class Format>
HWY_INLINE void cross_entropy(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) cross_entropy_rows<Format>(args, tile);
  if (tile.pass == Pass::sum) cross_entropy_sum<Format>(args, tile);
}

template <class Format>
HWY_INLINE void backward(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) backward_rows<Format>(args, tile);
  if (tile.pass == Pass::map) backward_map<Format>(args, tile);
}

}  // namespace

SWAMP_KERNELS(cross_entropy, kUpTo32, cross_entropy<A>)
SWAMP_KERNELS(cross_entropy_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
