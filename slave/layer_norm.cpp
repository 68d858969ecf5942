// The kernels of LayerNorm and RMSNorm, compiled once per target by Highway. A
// row is read twice: for the sums of its chunks, from which
// norm_statistics() makes mean and rstd, and to write y. RMSNorm is the same
// without mean and bias.
#include <algorithm>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

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

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Of bfloat16 the even and the odd elements are added by separate vectors.
template <std::size_t... k>
HWY_INLINE void add_wide_batches(const Plain<BFloat16>& source,
                                 std::size_t count, double* chains,
                                 std::index_sequence<k...>) {
  const DD dd;
  const hn::Rebind<float, DD> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  VD even[sizeof...(k)], odd[sizeof...(k)];
  (hn::LoadInterleaved2(dd, chains + k * kLanes, even[k], odd[k]), ...);
  const auto add = [&](std::size_t i, VD& even_sum, VD& odd_sum) HWY_ATTR {
    const auto pairs =
        hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(source.data + i));
    even_sum = hn::Add(even_sum, hn::PromoteTo(dd, even_bfloat16(df, pairs)));
    odd_sum = hn::Add(odd_sum, hn::PromoteTo(dd, odd_bfloat16(df, pairs)));
  };
  for (std::size_t i = 0; i < count; i += kWideChains) {
    (add(i + k * kLanes, even[k], odd[k]), ...);
  }
  (hn::StoreInterleaved2(even[k], odd[k], dd, chains + k * kLanes), ...);
}
#endif

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
  return tree_sum(DD(), chains, kWideChains);
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

template <class Format, bool kMean>
HWY_NOINLINE NormChunk<kMean> norm_chunk(const Plain<Format>& x,
                                         std::size_t count) {
  Chains<1> squares(0.0f);
  if constexpr (kMean) {
    const double sum = wide_sum(x, count);
    const float mean = static_cast<float>(sum / static_cast<double>(count));
    accumulate<CentredSquares>(x, count, squares, hn::Set(DF(), mean));
    return {sum, mean, squares.sum(0)};
  } else {
    accumulate<Squares>(x, count, squares);
    return {squares.sum(0)};
  }
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
  using At = NormOperand<kMean>;
  const Plain<Format> row{x};
  const Plain<Weight> weight{operand<WeightElement>(tile, At::weight)};
  const Plain<Weight> bias{operand<WeightElement>(tile, At::bias)};
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

template <class Format, bool kMean>
HWY_INLINE void norm_chunks(const typename Format::Element* x,
                            std::size_t columns, NormChunk<kMean>* chunk) {
  for (std::size_t at = 0; at < columns; at += kChunkColumns, ++chunk) {
    *chunk = norm_chunk<Format, kMean>(Plain<Format>{x + at},
                                       std::min(kChunkColumns, columns - at));
  }
}

// norm() computes layer_norm if kMean, else rms_norm.
template <class Format, class Weight, bool kMean>
HWY_INLINE void norm(const void* arguments, const Tile& tile, Result&) {
  using Element = typename Format::Element;
  using At = NormOperand<kMean>;
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const RowPart part = part_of_rows(tile, args.columns);
  const auto* x = operand<const Element>(tile, At::x);
  auto* y = operand<Element>(tile, At::y);
  auto* mean = operand<float>(tile, At::mean);  // not of rms_norm
  auto* rstd = operand<float>(tile, At::rstd);
  auto& state = *static_cast<NormState*>(tile.state);
  auto* chunks = state.chunks<kMean>();
  for (std::size_t i = 0; i < part.rows; ++i) {
    const std::size_t at = i * part.columns;
    if (part.sums) {
      norm_chunks<Format, kMean>(x + at, part.columns,
                                 chunks + part.first / kChunkColumns);
    }
    if (part.maps) {
      if (part.first == 0) {
        state.row = norm_statistics(chunks, args.columns, args.eps);
      }
      const NormStatistics& row = state.row;
      if (kMean) mean[i] = row.mean;
      rstd[i] = row.rstd;
      normalise_row<Format, Weight, kMean>(args, tile, x + at, part.columns,
                                           row.mean, row.rstd, y + at);
    }
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

}  // namespace

SWAMP_KERNELS(layer_norm, kSameOrWide, norm<A, B, true>)
SWAMP_KERNELS(rms_norm, kSameOrWide, norm<A, B, false>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
