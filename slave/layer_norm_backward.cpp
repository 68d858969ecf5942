// The backward kernels of LayerNorm and RMSNorm, compiled once per target by
// Highway.
#include <algorithm>
#include <cstring>

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

// backward_chunk() is the NormBackwardChunk of `count` columns, which it also
// adds to `sums`. It prefetches the columns that lie `ahead` columns further,
// in the next row.
template <bool kMean, class Source>
HWY_NOINLINE NormBackwardChunk backward_chunk(const Source& source,
                                              std::size_t count,
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
  const DF df;
  const std::size_t columns = args.columns;
  const auto* g = operand<const Element>(tile, 0);
  const auto* x = operand<const Element>(tile, 1);
  const auto* mean = operand<const float>(tile, 2);
  const auto* rstd = operand<const float>(tile, kMean ? 3 : 2);
  const auto* weight =
      operand<const typename Weight::Element>(tile, kMean ? 4 : 3);
  auto* dx = operand<Element>(tile, kMean ? 5 : 4);
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
    NormBackwardChunk chunks[kMaxRowChunks];
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      chunks[at / kChunkColumns] = backward_chunk<kMean>(
          source.from(at), std::min(kChunkColumns, columns - at), sums.from(at),
          tile.prefetch_bytes != 0 ? columns : 0);
    }
    const NormBackwardRow factors = combine_chunks(chunks, columns, 0, 0);
    backward_piece<Format, kMean>(source, columns, factors.a, factors.b,
                                  tile.non_temporal, dx + i * columns);
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

template <class Format, class Weight, bool kMean>
HWY_INLINE void backward_whole(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  if (tile.operands[kMean ? 4 : 3] != nullptr) {
    backward_rows<Format, Weight, true, kMean>(args, tile);
  } else {
    backward_rows<Format, Weight, false, kMean>(args, tile);
  }
}

template <class Format, class Weight, bool kWeight, bool kMean>
HWY_INLINE Gradients<Format, Weight, kWeight, kMean> piece_of(
    const RowNormArgs& args, const Tile& tile, int weight, float mean,
    float rstd) {
  const DF df;
  return {{operand<const typename Format::Element>(tile, 0)},
          {operand<const typename Format::Element>(tile, 1)},
          {operand<const typename Weight::Element>(tile, weight)},
          hn::Set(df, mean),
          hn::Set(df, rstd),
          hn::Set(df, args.weight_offset)};
}

template <class Format, class Weight, bool kMean>
HWY_INLINE void backward_sum(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const float mean = kMean ? *operand<const float>(tile, 2) : 0.0f;
  const float rstd = *operand<const float>(tile, kMean ? 3 : 2);
  constexpr int kWeight = kMean ? 4 : 3;
  // A tile may begin within a chunk, at a multiple of kChains.
  auto* sums = partial_result<NormBackwardSums>(tile);
  const auto write = [&](const auto& source) HWY_ATTR {
    for (std::size_t at = 0; at < tile.count; ++sums) {
      const std::size_t part = std::min(
          kChunkColumns - (tile.first + at) % kChunkColumns, tile.count - at);
      const WeightSums none{nullptr, nullptr};
      Chains<kMean ? 2 : 1> chains(0.0f);
      std::memcpy(chains.chain[kMean], sums->hx.chains, sizeof sums->hx);
      if constexpr (kMean) {
        std::memcpy(chains.chain[0], sums->h.chains, sizeof sums->h);
        accumulate<SumsOfH>(source.from(at), part, chains, none,
                            std::size_t{0});
        std::memcpy(sums->h.chains, chains.chain[0], sizeof sums->h);
      } else {
        accumulate<SumOfHX>(source.from(at), part, chains, none,
                            std::size_t{0});
      }
      std::memcpy(sums->hx.chains, chains.chain[kMean], sizeof sums->hx);
      at += part;
    }
  };
  if (tile.operands[kWeight] != nullptr) {
    write(
        piece_of<Format, Weight, true, kMean>(args, tile, kWeight, mean, rstd));
  } else {
    write(piece_of<Format, Weight, false, kMean>(args, tile, kWeight, mean,
                                                 rstd));
  }
}

template <class Format, class Weight, bool kMean>
HWY_INLINE void backward_map(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const auto& row = *operand<const NormBackwardRow>(tile, 2);
  constexpr int kWeight = kMean ? 4 : 3;
  auto* dx = operand<Element>(tile, kWeight + 1);
  const auto write = [&](const auto& source) HWY_ATTR {
    if (tile.partial != nullptr) {
      auto* sums = static_cast<double*>(tile.partial) + tile.first;
      add_weight_gradients<kMean>(source, tile.count,
                                  WeightSums{sums, sums + args.columns});
    }
    if (dx == nullptr) return;
    backward_piece<Format, kMean>(source, tile.count, row.a, row.b, false, dx);
  };
  if (tile.operands[kWeight] != nullptr) {
    write(piece_of<Format, Weight, true, kMean>(args, tile, kWeight, row.mean,
                                                row.rstd));
  } else {
    write(piece_of<Format, Weight, false, kMean>(args, tile, kWeight, row.mean,
                                                 row.rstd));
  }
}

template <class Format, class Weight, bool kMean>
HWY_INLINE void backward(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows)
    backward_whole<Format, Weight, kMean>(args, tile);
  if (tile.pass == Pass::sum) backward_sum<Format, Weight, kMean>(args, tile);
  if (tile.pass == Pass::map) backward_map<Format, Weight, kMean>(args, tile);
}

}  // namespace

SWAMP_KERNELS(layer_norm_backward, kSameOrWide, backward<A, B, true>)
SWAMP_KERNELS(rms_norm_backward, kSameOrWide, backward<A, B, false>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
