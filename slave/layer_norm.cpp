// The kernels of LayerNorm and RMSNorm, compiled once per target by Highway.
#include <algorithm>

#include "slave/kernel_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/layer_norm.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

template <class Source, std::size_t... k>
HWY_INLINE void add_wide_batches(const Source& source, std::size_t count,
                                 double* chains, std::index_sequence<k...>) {
  const DD dd;
  VD low[] = {hn::LoadU(dd, chains + k * kLanes)...};
  VD high[] = {hn::LoadU(dd, chains + k * kLanes + kWideLanes)...};
  const auto add = [&](VF value, VD& low_sum, VD& high_sum) HWY_ATTR {
    low_sum = hn::Add(low_sum, widen_half<0>(value));
    high_sum = hn::Add(high_sum, widen_half<1>(value));
  };
  for (std::size_t i = 0; i < count; i += kWideChains) {
    (add(source(i + k * kLanes), low[k], high[k]), ...);
  }
  (hn::StoreU(low[k], dd, chains + k * kLanes), ...);
  (hn::StoreU(high[k], dd, chains + k * kLanes + kWideLanes), ...);
}

// wide_sum() is the sum of a chunk in double.
template <class Source>
HWY_NOINLINE double wide_sum(const Source& source, std::size_t count) {
  double chains[kWideChains] = {};
  const std::size_t whole = count / kWideChains * kWideChains;
  if constexpr (kLanes >= 8) {
    add_wide_batches(source, whole, chains,
                     std::make_index_sequence<kWideChains / kLanes>());
  } else {
    for (std::size_t i = 0; i < whole; i += kWideChains) {
      for (std::size_t k = 0; k < kWideChains; k += kLanes) {
        add_wide(source(i + k), chains + k);
      }
    }
  }
  if (whole != count) {
    typename Source::Copy copy;
    const Source tail = source.tail(whole, count - whole, copy);
    for (std::size_t k = 0; k < count - whole; k += kLanes) {
      const std::size_t left = count - whole - k;
      const auto value = tail(k);
      add_wide(left >= kLanes
                   ? value
                   : hn::IfThenElseZero(hn::FirstN(DF(), left), value),
               chains + k);
    }
  }
  for (std::size_t distance = kWideChains / 2; distance != 0; distance /= 2) {
    for (std::size_t i = 0; i < distance; ++i) {
      chains[i] += chains[i + distance];
    }
  }
  return chains[0];
}

template <class Source, bool kTail>
struct CentredSquares {
  Source source;
  VF mean;

  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    const auto d = hn::Sub(source(i), mean);
    sum = hn::Add(sum, hn::Mul(d, d));
  }
};

template <class Source, bool kTail>
struct Squares {
  Source source;

  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    const auto x = source(i);
    sum = hn::Add(sum, hn::Mul(x, x));
  }
};

template <class Format>
HWY_NOINLINE LayerNormChunk layer_norm_chunk(const Plain<Format>& x,
                                             std::size_t count) {
  const double sum = wide_sum(x, count);
  const float mean = static_cast<float>(sum / static_cast<double>(count));
  Chains<1> squares(0.0f);
  accumulate<CentredSquares>(x, count, squares, hn::Set(DF(), mean));
  return {sum, mean, squares.sum(0)};
}

template <class Format>
HWY_NOINLINE float rms_norm_chunk(const Plain<Format>& x, std::size_t count) {
  Chains<1> squares(0.0f);
  accumulate<Squares>(x, count, squares);
  return squares.sum(0);
}

// Affine is a row with the weight and bias of its columns, if there are any.
template <class Format, class Weight, bool kWeight, bool kBias>
struct Affine {
  static constexpr bool kHasWeight = kWeight;
  static constexpr bool kHasBias = kBias;
  struct Copy {
    typename Plain<Format>::Copy x;
    typename Plain<Weight>::Copy weight, bias;
  };
  Plain<Format> x;
  Plain<Weight> weight, bias;

  HWY_INLINE Affine tail(std::size_t i, std::size_t count, Copy& copy) const {
    return {x.tail(i, count, copy.x),
            kWeight ? weight.tail(i, count, copy.weight) : weight,
            kBias ? bias.tail(i, count, copy.bias) : bias};
  }
};

template <bool kMean>
struct Normalise {
  template <class Source>
  struct Body {
    Source source;
    VF mean, rstd, offset;

    HWY_INLINE VF operator()(std::size_t i) const {
      auto y = source.x(i);
      if (kMean) y = hn::Sub(y, mean);
      y = hn::Mul(y, rstd);
      if constexpr (Source::kHasWeight) {
        y = hn::Mul(y, hn::Add(source.weight(i), offset));
      }
      if constexpr (Source::kHasBias) y = hn::Add(y, source.bias(i));
      return y;
    }
  };
};

template <class Format, bool kMean, class Source>
HWY_NOINLINE void normalise(const RowNormArgs& args, const Source& source,
                            std::size_t count, float mean, float rstd,
                            typename Format::Element* y, bool stream) {
  const DF df;
  map<Format, false, Normalise<kMean>::template Body>(
      source, count, y, stream, hn::Set(df, mean), hn::Set(df, rstd),
      hn::Set(df, args.weight_offset));
}

// normalise_row() writes `count` columns of y.
template <class Format, class Weight, bool kMean>
HWY_INLINE void normalise_row(const RowNormArgs& args, const Tile& tile,
                              const typename Format::Element* x,
                              std::size_t count, float mean, float rstd,
                              typename Format::Element* y) {
  using WeightElement = const typename Weight::Element;
  const Plain<Format> row{x};
  const Plain<Weight> weight{operand<WeightElement>(tile, 1)};
  const Plain<Weight> bias{operand<WeightElement>(tile, kMean ? 2 : 1)};
  const bool stream = tile.non_temporal;
  const auto write = [&](const auto& source) HWY_ATTR {
    normalise<Format, kMean>(args, source, count, mean, rstd, y, stream);
  };
  if (kMean && bias.data != nullptr) {
    if (weight.data != nullptr) {
      write(Affine<Format, Weight, true, kMean>{row, weight, bias});
    } else {
      write(Affine<Format, Weight, false, kMean>{row, weight, bias});
    }
  } else if (weight.data != nullptr) {
    write(Affine<Format, Weight, true, false>{row, weight, bias});
  } else {
    write(Affine<Format, Weight, false, false>{row, weight, bias});
  }
}

template <class Format, class Weight>
HWY_INLINE void layer_norm_rows(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const std::size_t columns = args.columns;
  const auto* x = operand<const Element>(tile, 0);
  auto* y = operand<Element>(tile, 3);
  auto* mean = operand<float>(tile, 4);
  auto* rstd = operand<float>(tile, 5);
  for (std::size_t i = 0; i < tile.count; ++i, x += columns, y += columns) {
    LayerNormChunk chunks[kMaxRowChunks];
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      chunks[at / kChunkColumns] = layer_norm_chunk(
          Plain<Format>{x + at}, std::min(kChunkColumns, columns - at));
    }
    const LayerNormTotal total = combine_chunks(chunks, columns);
    mean[i] = static_cast<float>(total.mean);
    rstd[i] = norm_rstd(total.variance, args.eps);
    normalise_row<Format, Weight, true>(args, tile, x, columns, mean[i],
                                        rstd[i], y);
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

template <class Format>
HWY_INLINE void layer_norm_sum(const Tile& tile) {
  const auto* x = operand<const typename Format::Element>(tile, 0);
  auto* chunk = partial_result<LayerNormChunk>(tile);
  for (std::size_t at = 0; at < tile.count; at += kChunkColumns, ++chunk) {
    *chunk = layer_norm_chunk(Plain<Format>{x + at},
                              std::min(kChunkColumns, tile.count - at));
  }
}

template <class Format, class Weight>
HWY_INLINE void layer_norm_map(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  normalise_row<Format, Weight, true>(
      *static_cast<const RowNormArgs*>(arguments), tile,
      operand<const Element>(tile, 0), tile.count,
      *operand<const float>(tile, 4), *operand<const float>(tile, 5),
      operand<Element>(tile, 3));
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

template <class Format, class Weight>
HWY_INLINE void rms_norm_rows(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const std::size_t columns = args.columns;
  const auto* x = operand<const Element>(tile, 0);
  auto* y = operand<Element>(tile, 2);
  auto* rstd = operand<float>(tile, 3);
  for (std::size_t i = 0; i < tile.count; ++i, x += columns, y += columns) {
    double squares = 0;
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      squares += static_cast<double>(rms_norm_chunk(
          Plain<Format>{x + at}, std::min(kChunkColumns, columns - at)));
    }
    rstd[i] = norm_rstd(squares / static_cast<double>(columns), args.eps);
    normalise_row<Format, Weight, false>(args, tile, x, columns, 0, rstd[i], y);
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

template <class Format>
HWY_INLINE void rms_norm_sum(const Tile& tile) {
  const auto* x = operand<const typename Format::Element>(tile, 0);
  auto* chunk = partial_result<RmsNormChunk>(tile);
  for (std::size_t at = 0; at < tile.count; at += kChunkColumns, ++chunk) {
    chunk->squares = rms_norm_chunk(Plain<Format>{x + at},
                                    std::min(kChunkColumns, tile.count - at));
  }
}

template <class Format, class Weight>
HWY_INLINE void rms_norm_map(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  normalise_row<Format, Weight, false>(
      *static_cast<const RowNormArgs*>(arguments), tile,
      operand<const Element>(tile, 0), tile.count, 0,
      *operand<const float>(tile, 3), operand<Element>(tile, 2));
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

template <class Format, class Weight>
HWY_INLINE void layer_norm(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) layer_norm_rows<Format, Weight>(args, tile);
  if (tile.pass == Pass::sum) layer_norm_sum<Format>(tile);
  if (tile.pass == Pass::map) layer_norm_map<Format, Weight>(args, tile);
}

template <class Format, class Weight>
HWY_INLINE void rms_norm(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) rms_norm_rows<Format, Weight>(args, tile);
  if (tile.pass == Pass::sum) rms_norm_sum<Format>(tile);
  if (tile.pass == Pass::map) rms_norm_map<Format, Weight>(args, tile);
}

}  // namespace

SWAMP_KERNELS(layer_norm, layer_norm<A, B>)
SWAMP_KERNELS(rms_norm, rms_norm<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
