// The backward kernels of LayerNorm and RMSNorm, compiled once per target by
// Highway.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/layer_norm_backward.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// Gradients is the rows of g and x, with the weights of the columns, if any.
template <class Format, class Weight, bool kWeight, bool kMean>
struct Gradients {
  struct Copy {
    typename Plain<Format>::Copy g, x;
    typename Plain<Weight>::Copy weight;
  };
  Plain<Format> g, x;
  Plain<Weight> weight;
  VF mean, rstd, offset;

  HWY_INLINE VF xhat(std::size_t i) const {
    const auto value = x(i);
    return hn::Mul(kMean ? hn::Sub(value, mean) : value, rstd);
  }
  HWY_INLINE VF h(std::size_t i) const {
    if constexpr (kWeight) {
      return hn::Mul(g(i), hn::Add(weight(i), offset));
    } else {
      return g(i);
    }
  }
  HWY_INLINE void prefetch(std::size_t i) const {
    hwy::Prefetch(g.data + i);
    hwy::Prefetch(x.data + i);
  }
  HWY_INLINE Gradients tail(std::size_t i, std::size_t count,
                            Copy& copy) const {
    return {g.tail(i, count, copy.g),
            x.tail(i, count, copy.x),
            kWeight ? weight.tail(i, count, copy.weight) : weight,
            mean,
            rstd,
            offset};
  }
  HWY_INLINE Gradients from(std::size_t i) const {
    return {{g.data + i}, {x.data + i}, {kWeight ? weight.data + i : nullptr},
            mean,         rstd,         offset};
  }
};

// WeightSums is where the gradients of weight and bias are added up.
struct WeightSums {
  double* weight;  // null: not computed
  double* bias;

  HWY_INLINE WeightSums from(std::size_t i) const {
    if (weight == nullptr) return *this;
    return {weight + i, bias + i};
  }
  template <bool kMean>
  HWY_INLINE void add(std::size_t i, VF g, VF xhat) const {
    add_wide(hn::Mul(g, xhat), weight + i);
    if (kMean) add_wide(g, bias + i);
  }
};

// SumsOfH also adds to the gradients of weight and bias, except in the tail.
template <class Source, bool kTail>
struct SumsOfH {
  Source source;
  WeightSums sums;
  std::size_t ahead;  // columns; prefetched if not 0

  HWY_INLINE void operator()(std::size_t i, VF& sum_h, VF& sum_hx) const {
    if (!kTail && ahead != 0) source.prefetch(i + ahead);
    const auto xhat = source.xhat(i);
    const auto h = source.h(i);
    if (!kTail && sums.weight != nullptr) {
      sums.template add<true>(i, source.g(i), xhat);
    }
    sum_h = hn::Add(sum_h, h);
    sum_hx = hn::Add(sum_hx, hn::Mul(h, xhat));
  }
};

template <class Source, bool kTail>
struct SumOfHX {
  Source source;
  WeightSums sums;
  std::size_t ahead;

  HWY_INLINE void operator()(std::size_t i, VF& sum_hx) const {
    if (!kTail && ahead != 0) source.prefetch(i + ahead);
    const auto xhat = source.xhat(i);
    const auto h = source.h(i);
    if (!kTail && sums.weight != nullptr) {
      sums.template add<false>(i, source.g(i), xhat);
    }
    sum_hx = hn::Add(sum_hx, hn::Mul(h, xhat));
  }
};

template <bool kMean>
struct Backward {
  template <class Source>
  struct Body {
    Source source;
    VF a, b;

    HWY_INLINE VF operator()(std::size_t i) const {
      auto h = source.h(i);
      if (kMean) h = hn::Sub(h, a);
      return hn::Mul(source.rstd, hn::Sub(h, hn::Mul(source.xhat(i), b)));
    }
  };
};

// add_weight_gradients() adds `count` columns to the gradients of weight and,
// if kMean, bias.
template <bool kMean, class Source>
HWY_NOINLINE void add_weight_gradients(const Source& source, std::size_t count,
                                       const WeightSums& sums) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    sums.template add<kMean>(i, source.g(i), source.xhat(i));
  }
  if (i == count) return;
  typename Source::Copy copy;
  const Source tail = source.tail(i, count - i, copy);
  double results[2][kLanes] = {};
  WeightSums{results[0], results[1]}.template add<kMean>(0, tail.g(0),
                                                         tail.xhat(0));
  for (std::size_t k = 0; k < count - i; ++k) {
    sums.weight[i + k] += results[0][k];
    if (kMean) sums.bias[i + k] += results[1][k];
  }
}

struct SumsOfChunk {
  float h, hx;
};

// backward_chunk() returns the sums of `count` columns, which it also adds to
// `sums`. It prefetches the columns that lie `ahead` columns further,
// in the next row.
template <bool kMean, class Source>
HWY_NOINLINE SumsOfChunk backward_chunk(const Source& source, std::size_t count,
                                        const WeightSums& sums,
                                        std::size_t ahead) {
  const std::size_t whole = count / kChains * kChains;
  if (sums.weight != nullptr && whole != count) {
    add_weight_gradients<kMean>(source.from(whole), count - whole,
                                sums.from(whole));
  }
  if constexpr (kMean) {
    Chains<2> chains(0.0f);
    accumulate<SumsOfH>(source, count, chains, sums, ahead);
    return {chains.sum(0), chains.sum(1)};
  } else {
    Chains<1> chains(0.0f);
    accumulate<SumOfHX>(source, count, chains, sums, ahead);
    return {0, chains.sum(0)};
  }
}

template <class Format, bool kMean, class Source>
HWY_NOINLINE void backward_piece(const Source& source, std::size_t count,
                                 float a, float b, bool stream,
                                 typename Format::Element* dx) {
  const DF df;
  map<Format, false, Backward<kMean>::template Body>(
      source, count, dx, stream, hn::Set(df, a), hn::Set(df, b));
}

template <class Format, class Weight, bool kWeight, bool kMean>
HWY_INLINE void backward_rows(const RowNormArgs& args, const Tile& tile) {
  using Element = typename Format::Element;
  using At = NormBackwardOperand<kMean>;
  const DF df;
  const std::size_t columns = args.columns;
  const auto* g = operand<const Element>(tile, At::g);
  const auto* x = operand<const Element>(tile, At::x);
  const auto* mean = operand<const float>(tile, At::mean);
  const auto* rstd = operand<const float>(tile, At::rstd);
  const auto* weight =
      operand<const typename Weight::Element>(tile, At::weight);
  auto* dx = operand<Element>(tile, At::dx);
  auto* partial = static_cast<double*>(tile.partial);
  for (std::size_t i = 0; i < tile.count; ++i) {
    // A tile may hold several grains, each with a partial result of its own.
    if (partial != nullptr && i != 0 && tile.grain_units != 0 &&
        (tile.first + i) % tile.grain_units == 0) {
      partial += (kMean ? 2 : 1) * columns;
    }
    const WeightSums sums{partial,
                          partial + (partial == nullptr ? 0 : columns)};
    const Gradients<Format, Weight, kWeight, kMean> source{
        {g + i * columns},
        {x + i * columns},
        {weight},
        hn::Set(df, kMean ? mean[i] : 0.0f),
        hn::Set(df, rstd[i]),
        hn::Set(df, args.weight_offset)};
    if (dx == nullptr) {
      if (partial != nullptr) {
        add_weight_gradients<kMean>(source, columns, sums);
      }
      continue;
    }
    double sum_h = 0, sum_hx = 0;
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      const SumsOfChunk chunk = backward_chunk<kMean>(
          source.from(at), std::min(kChunkColumns, columns - at), sums.from(at),
          tile.prefetch_bytes != 0 ? columns : 0);
      sum_h += static_cast<double>(chunk.h);
      sum_hx += static_cast<double>(chunk.hx);
    }
    const NormBackwardFactors factors =
        norm_backward_factors(sum_h, sum_hx, columns);
    backward_piece<Format, kMean>(source, columns, factors.a, factors.b,
                                  tile.non_temporal, dx + i * columns);
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

// add_to_state() adds a piece to the sums of its row. The chains of a chunk
// continue those of the piece before.
template <bool kMean, class Source>
HWY_NOINLINE void add_to_state(const Source& source, const RowPart& part,
                               std::size_t columns, NormBackwardState& state) {
  if (part.first == 0) state = {};
  const WeightSums none{nullptr, nullptr};
  const auto visit = [&](std::size_t, std::size_t at,
                         std::size_t count) HWY_ATTR {
    Chains<kMean ? 2 : 1> chains(0.0f);
    chains.load(kMean, state.hx);
    if constexpr (kMean) {
      chains.load(0, state.h);
      accumulate<SumsOfH>(source.from(at), count, chains, none, std::size_t{0});
      chains.store(0, state.h);
    } else {
      accumulate<SumOfHX>(source.from(at), count, chains, none, std::size_t{0});
    }
    chains.store(kMean, state.hx);
    if (!ends_chunk(part.first + at + count, columns)) return;
    state.sum_h += static_cast<double>(state.h.total());
    state.sum_hx += static_cast<double>(state.hx.total());
    state.h.clear();
    state.hx.clear();
  };
  for_each_chunk(part.first, part.columns, visit);
}

// backward_pass() computes a piece of a row.
template <class Format, class Weight, bool kWeight, bool kMean>
HWY_INLINE void backward_pass(const RowNormArgs& args, const Tile& tile) {
  using Element = typename Format::Element;
  using At = NormBackwardOperand<kMean>;
  const DF df;
  const RowPart part = part_of_rows(tile, args.columns);
  const float mean = kMean ? *operand<const float>(tile, At::mean) : 0.0f;
  const float rstd = *operand<const float>(tile, At::rstd);
  const Gradients<Format, Weight, kWeight, kMean> source{
      {operand<const Element>(tile, At::g)},
      {operand<const Element>(tile, At::x)},
      {operand<const typename Weight::Element>(tile, At::weight)},
      hn::Set(df, mean),
      hn::Set(df, rstd),
      hn::Set(df, args.weight_offset)};
  auto& state = *static_cast<NormBackwardState*>(tile.state);
  if (part.sums) {
    add_to_state<kMean>(source, part, args.columns, state);
    return;
  }
  if (tile.partial != nullptr) {
    auto* const sums = static_cast<double*>(tile.partial);
    add_weight_gradients<kMean>(source, part.columns,
                                WeightSums{sums, sums + part.columns});
  }
  auto* const dx = operand<Element>(tile, At::dx);
  if (dx == nullptr) return;
  const NormBackwardFactors factors =
      norm_backward_factors(state.sum_h, state.sum_hx, args.columns);
  backward_piece<Format, kMean>(source, part.columns, factors.a, factors.b,
                                false, dx);
}

template <class Format, class Weight, bool kMean>
HWY_INLINE void backward(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const auto run = [&](auto has_weight) HWY_ATTR {
    constexpr bool kWeight = decltype(has_weight)::value;
    // Without a weight its format makes no difference.
    using W = std::conditional_t<kWeight, Weight, Format>;
    if (tile.pass == Pass::rows) {
      backward_rows<Format, W, kWeight, kMean>(args, tile);
    } else {
      backward_pass<Format, W, kWeight, kMean>(args, tile);
    }
  };
  if (tile.operands[NormBackwardOperand<kMean>::weight] != nullptr) {
    run(std::true_type());
  } else {
    run(std::false_type());
  }
}

}  // namespace

SWAMP_KERNELS(layer_norm_backward, kSameOrWide, backward<A, B, true>)
SWAMP_KERNELS(rms_norm_backward, kSameOrWide, backward<A, B, false>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
