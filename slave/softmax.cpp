// The softmax kernels, compiled once per target by Highway. A row is read for
// its maximum, then for the sum of the exponentials, by chunk, and the output
// is exp times a factor; in a row of one chunk the exponentials are kept, so
// that each is computed once. The last columns are padded to a batch, because
// exp of single vectors is slow. The log of the softmax needs no exponential
// after the sum.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/softmax.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/exp-inl.h"
#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// ---- Sources

template <class Format>
struct Scaled {
  using Element = typename Format::Element;
  using Copy = typename Plain<Format>::Copy;
  static constexpr bool kMask = false;
  Plain<Format> row;
  VF scale;

  HWY_INLINE VF operator()(std::size_t i) const {
    return hn::Mul(row(i), scale);
  }
  HWY_INLINE Scaled tail(std::size_t i, std::size_t count, Copy& copy) const {
    return {row.tail(i, count, copy), scale};
  }
  HWY_INLINE Scaled from(std::size_t i) const {
    return {{row.data + i}, scale};
  }
};

template <class Format>
struct Masked {
  using Element = typename Format::Element;
  struct Copy {
    typename Plain<Format>::Copy row;
    std::uint8_t mask[kChains];
  };
  static constexpr bool kMask = true;
  Plain<Format> row;
  VF scale;
  const std::uint8_t* mask;

  HWY_INLINE VF operator()(std::size_t i) const {
    const DF df;
    const hn::RebindToUnsigned<DF> du;
    const auto bytes =
        hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint8_t, DF>(), mask + i));
    const auto is_open = hn::RebindMask(df, hn::Eq(bytes, hn::Zero(du)));
    return hn::IfThenElse(is_open, hn::Mul(row(i), scale),
                          hn::Set(df, kMasked));
  }
  HWY_INLINE Masked tail(std::size_t i, std::size_t count, Copy& copy) const {
    copy_tail(mask + i, count, copy.mask);
    return {row.tail(i, count, copy.row), scale, copy.mask};
  }
  HWY_INLINE Masked from(std::size_t i) const {
    return {{row.data + i}, scale, mask + i};
  }
};

// Pair is the gradient and the output of a softmax.
template <class Format>
struct Pair {
  struct Copy {
    typename Plain<Format>::Copy gradient, y;
  };
  Plain<Format> gradient, y;

  HWY_INLINE Pair tail(std::size_t i, std::size_t count, Copy& copy) const {
    return {gradient.tail(i, count, copy.gradient), y.tail(i, count, copy.y)};
  }
  HWY_INLINE Pair from(std::size_t i) const {
    return {{gradient.data + i}, {y.data + i}};
  }
};

// ---- Bodies

// ExpSumStore also stores the exponentials.
template <class Source, bool kTail>
struct ExpSumStore {
  Source source;
  VF shift;
  const std::uint8_t* next;
  float* exps;

  HWY_INLINE VF argument(std::size_t i) const {
    return hn::Sub(source(i), shift);
  }
  HWY_INLINE void finish(std::size_t i, VF e, VF& sum) const {
    if (next != nullptr) {
      hwy::Prefetch(next + i * sizeof(typename Source::Element));
    }
    hn::StoreU(e, DF(), exps + i);
    sum = hn::Add(sum, e);
  }
  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    finish(i, exp_nonpositive(DF(), argument(i)), sum);
  }
};

template <class Source>
struct ExpMap {
  Source source;
  VF shift, factor;

  HWY_INLINE VF argument(std::size_t i) const {
    return hn::Sub(source(i), shift);
  }
  HWY_INLINE VF finish(std::size_t, VF e) const { return hn::Mul(e, factor); }
  HWY_INLINE VF operator()(std::size_t i) const {
    return finish(i, exp_nonpositive(DF(), argument(i)));
  }
};

template <class Source>
struct LogMap {
  Source source;
  VF high, low;

  HWY_INLINE VF operator()(std::size_t i) const {
    return hn::Sub(hn::Sub(source(i), high), low);
  }
};

template <class Source>
struct Times {
  Source source;
  VF factor;

  HWY_INLINE VF operator()(std::size_t i) const {
    return hn::Mul(source(i), factor);
  }
};

template <class Source, bool kTail>
struct ProductSum {
  Source source;

  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    sum = hn::Add(sum, hn::Mul(source.gradient(i), source.y(i)));
  }
};

template <class Source, bool kTail>
struct GradientSum {
  Source source;

  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    sum = hn::Add(sum, source.gradient(i));
  }
};

template <class Source>
struct Backward {
  Source source;
  VF scale, dot;

  HWY_INLINE VF operator()(std::size_t i) const {
    const auto y = source.y(i);
    const auto t = hn::Mul(source.gradient(i), y);
    return hn::Mul(scale, hn::Sub(t, hn::Mul(y, dot)));
  }
};

template <class Source>
struct LogBackward {
  Source source;
  VF scale, dot;

  HWY_INLINE VF argument(std::size_t i) const {
    const auto y = source.y(i);
    return hn::IfThenZeroElse(hn::Gt(y, hn::Zero(DF())), y);
  }
  HWY_INLINE VF finish(std::size_t i, VF p) const {
    return hn::Mul(scale, hn::Sub(source.gradient(i), hn::Mul(p, dot)));
  }
  HWY_INLINE VF operator()(std::size_t i) const {
    return finish(i, exp_nonpositive(DF(), argument(i)));
  }
};

// ---- The last batch of a row

// LastBatch is the last columns of a row, fewer than a batch has, with padding
// after them, so that they are computed like the other batches.
struct LastBatch {
  HWY_ALIGN float value[kChains];

  Plain<Float32> source() const { return {value}; }
};

// pad() fills a batch with `count` columns of `source` from column `at`, and
// with `padding`. The memory of the row ends at column `end`.
template <class Source>
HWY_INLINE void pad(const Source& source, std::size_t at, std::size_t count,
                    std::size_t end, float padding, LastBatch& batch) {
  const DF df;
  typename Source::Copy copy;
  const Source tail =
      at + kChains <= end ? source.from(at) : source.tail(at, count, copy);
  for (std::size_t k = 0; k < kChains; k += kLanes) {
    VF value = hn::Set(df, padding);
    if (k < count) {
      value = hn::IfThenElse(hn::FirstN(df, count - k), tail(k), value);
    }
    hn::Store(value, df, batch.value + k);
  }
}

// store_last() stores body(k) for `count` columns, fewer than a batch has. If
// the output has a batch or more (`room` columns), the rest of the batch is set
// to 0. Returns the number of columns stored.
template <class Format, bool kNumber, class Body>
HWY_INLINE std::size_t store_last(const Body& body, std::size_t count,
                                  std::size_t room,
                                  typename Format::Element* out, bool stream) {
  const DF df;
  typename Format::Element results[kChains];
  const bool fits = room >= kChains;
  auto* to = fits ? out : results;
  const bool lines =
      kHasNonTemporalStores && fits && stream && is_lines(out, kChains);
  for (std::size_t k = 0; k < kChains; k += kLanes) {
    VF value = hn::Zero(df);
    if (k < count) {
      value = hn::IfThenElseZero(hn::FirstN(df, count - k), body(k));
    }
    if (lines) {
      stream_vector<Format, kNumber>(value, to + k);
    } else {
      store_vector<Format, kNumber>(value, to + k);
    }
  }
  if (fits) return kChains;
  std::memcpy(out, results, count * sizeof *out);
  return count;
}

// zero_columns() sets `count` columns to 0.
template <class Element>
HWY_INLINE void zero_columns(Element* out, std::size_t count, bool stream) {
  const hn::ScalableTag<std::uint8_t> d;
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  const std::size_t byte_count = count * sizeof(Element);
  if (kHasNonTemporalStores && stream && is_lines(out, count)) {
    for (std::size_t i = 0; i < byte_count; i += hn::MaxLanes(d)) {
      hn::Stream(hn::Zero(d), d, bytes + i);
    }
  } else {
    std::memset(bytes, 0, byte_count);
  }
}

// ---- One chunk

// chunk_of() is the SoftmaxChunk of `count` columns of a row that ends at
// column `end`. The exponentials of whole batches go to `exps` if it is not
// null, the others to `last`.
template <class Source>
HWY_NOINLINE SoftmaxChunk chunk_of(const Source& source, std::size_t count,
                                   std::size_t end, float* exps,
                                   LastBatch& last, const void* next_row) {
  constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
  const std::size_t whole = count / kChains * kChains;
  Chains<1> maxima(kMinusInf);
  accumulate<Largest>(source, whole, maxima);
  if (whole != count) {
    pad(source, whole, count - whole, end, kMinusInf, last);
    accumulate<Largest>(last.source(), kChains, maxima);
  }
  const float max = maxima.max();
  const auto shift = hn::Set(DF(), chunk_shift(max));
  const auto* next = static_cast<const std::uint8_t*>(next_row);
  Chains<1> sums(0.0f);
  if (exps != nullptr) {
    accumulate<ExpSumStore>(source, whole, sums, shift, next, exps);
  } else {
    accumulate<ExpSum>(source, whole, sums, shift, next);
  }
  if (whole != count) {
    const std::uint8_t* none = nullptr;
    float* const last_exps = last.value;
    accumulate<ExpSumStore>(last.source(), kChains, sums, shift, none,
                            last_exps);
  }
  const float sum = sums.sum(0);
  return {sum == sum ? max : sum, sum};
}

// map_batches() writes the whole batches of y. Their exponentials are in `exps`
// if it is not null; it may be y.
template <class Format, class Source>
HWY_NOINLINE void map_batches(const Source& source, std::size_t count,
                              const SoftmaxFactor& number, const float* exps,
                              typename Format::Element* y, bool stream) {
  const DF df;
  const auto factor = hn::Set(df, number.factor);
  if (exps != nullptr) {
    map<Format, true, Times>(Plain<Float32>{exps}, count, y, stream, factor);
  } else {
    map<Format, true, ExpMap>(source, count, y, stream,
                              hn::Set(df, number.shift), factor);
  }
}

// log_columns() writes `count` columns of the log of the softmax.
template <class Format, class Source>
HWY_NOINLINE void log_columns(const Source& source, std::size_t count,
                              const SoftmaxFactor& number,
                              typename Format::Element* y, bool stream) {
  const DF df;
  map<Format, false, LogMap>(source, count, y, stream,
                             hn::Set(df, number.shift),
                             hn::Set(df, number.factor));
}

// ---- Rows

// softmax_row() writes a row of y: its first `count` columns, and 0 after them.
template <class Format, class Source>
HWY_INLINE void softmax_row(const SoftmaxArgs& args, const Source& source,
                            std::size_t count, typename Format::Element* y,
                            float* scratch, const Tile& tile,
                            const typename Source::Element* next_row) {
  constexpr bool kInOutput = std::is_same<Format, Float32>::value;
  const bool stream = tile.non_temporal && !kInOutput;
  auto* chunks = static_cast<SoftmaxState*>(tile.state)->chunks();
  LastBatch last;
  const std::size_t chunk_count = chunks_of(count);
  // The exponentials of a float32 row fit into its output.
  const auto exps_of = [&](std::size_t at) -> float* {
    if (args.log != 0) return nullptr;
    if constexpr (kInOutput) return y + at;
    return chunk_count == 1 ? scratch : nullptr;
  };
  for (std::size_t c = 0; c < chunk_count; ++c) {
    const std::size_t at = c * kChunkColumns;
    chunks[c] = chunk_of(source.from(at), std::min(kChunkColumns, count - at),
                         args.columns - at, exps_of(at), last,
                         next_row == nullptr ? nullptr : next_row + at);
  }
  const SoftmaxTotal total = combine_chunks(chunks, chunk_count);
  std::size_t written = count;
  if (HWY_UNLIKELY(total.sum != total.sum)) {
    fill_nan<Format>(y, count);
  } else if (args.log != 0) {
    const SoftmaxFactor factor = softmax_factor(args, total.max, total);
    log_columns<Format>(source, count, factor, y, stream);
  } else {
    const std::size_t whole = count / kChains * kChains;
    SoftmaxFactor factor = {};
    for (std::size_t c = 0; c < chunk_count; ++c) {
      const std::size_t at = c * kChunkColumns;
      factor = softmax_factor(args, chunks[c].max, total);
      map_batches<Format>(source.from(at), std::min(kChunkColumns, whole - at),
                          factor, exps_of(at), y + at, stream);
    }
    if (whole != count) {
      const Times<Plain<Float32>> body{last.source(),
                                       hn::Set(DF(), factor.factor)};
      written = whole + store_last<Format, true>(body, count - whole,
                                                 args.columns - whole,
                                                 y + whole, stream);
    }
  }
  zero_columns(y + written, args.columns - written, stream);
}

template <class Format>
HWY_INLINE Scaled<Format> source_of(VF scale,
                                    const typename Format::Element* x) {
  return {{x}, scale};
}
template <class Format>
HWY_INLINE Masked<Format> source_of(VF scale, const typename Format::Element* x,
                                    const std::uint8_t* mask) {
  return {{x}, scale, mask};
}

template <class Format>
HWY_INLINE VF scale_of(const SoftmaxArgs& args) {
  const VF scale = hn::Set(DF(), args.scale);
  return args.round_scale != 0 ? Format::round(DF(), scale) : scale;
}

template <class Format, bool kMask>
HWY_INLINE void softmax_rows(const SoftmaxArgs& args, const Tile& tile) {
  using At = SoftmaxOperand;
  using Element = typename Format::Element;
  const std::size_t columns = args.columns;
  const auto* x = operand<const Element>(tile, At::x);
  const auto* mask = operand<const std::uint8_t>(tile, At::mask);
  auto* y = operand<Element>(tile, At::y);
  auto* scratch = static_cast<float*>(tile.scratch);
  const VF scale = scale_of<Format>(args);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const std::size_t count = valid_columns(args, tile.first + i);
    const Element* next = tile.prefetch_bytes != 0 ? x + columns : nullptr;
    if constexpr (kMask) {
      softmax_row<Format>(args, source_of<Format>(scale, x, mask), count, y,
                          scratch, tile, next);
      mask += columns;
    } else {
      softmax_row<Format>(args, source_of<Format>(scale, x), count, y, scratch,
                          tile, next);
    }
    x += columns;
    y += columns;
  }
  if (kHasNonTemporalStores && tile.non_temporal) hwy::FlushStream();
}

// valid_part() returns how many columns of a piece count.
template <class Args>
HWY_INLINE std::size_t valid_part(const Args& args, const RowPart& part) {
  const std::size_t valid = valid_columns(args, part.row);
  return std::min(part.columns, std::max(valid, part.first) - part.first);
}

template <class Format, bool kMask>
HWY_INLINE auto source_of(const SoftmaxArgs& args, const Tile& tile) {
  const auto* x =
      operand<const typename Format::Element>(tile, SoftmaxOperand::x);
  if constexpr (kMask) {
    return source_of<Format>(
        scale_of<Format>(args), x,
        operand<const std::uint8_t>(tile, SoftmaxOperand::mask));
  } else {
    return source_of<Format>(scale_of<Format>(args), x);
  }
}

// softmax_sum() sets the chunks of a piece, which has whole chunks.
template <class Format, bool kMask>
HWY_INLINE void softmax_sum(const SoftmaxArgs& args, const Tile& tile,
                            const RowPart& part) {
  const auto source = source_of<Format, kMask>(args, tile);
  const std::size_t valid = valid_part(args, part);
  auto* chunk = static_cast<SoftmaxState*>(tile.state)->chunks() +
                part.first / kChunkColumns;
  LastBatch last;
  for (std::size_t at = 0; at < part.columns; at += kChunkColumns) {
    const std::size_t count =
        at < valid ? std::min(kChunkColumns, valid - at) : 0;
    *chunk++ = chunk_of(source.from(at), count, part.columns - at, nullptr,
                        last, nullptr);
  }
}

// softmax_map() writes a piece of a row. The first one combines the chunks.
template <class Format, bool kMask>
HWY_INLINE void softmax_map(const SoftmaxArgs& args, const Tile& tile,
                            const RowPart& part) {
  using Element = typename Format::Element;
  const auto source = source_of<Format, kMask>(args, tile);
  auto* y = operand<Element>(tile, SoftmaxOperand::y);
  auto& state = *static_cast<SoftmaxState*>(tile.state);
  const SoftmaxChunk* const chunks = state.chunks();
  if (part.first == 0) {
    state.total = combine_chunks(chunks, chunks_of(args.columns));
  }
  const SoftmaxTotal& total = state.total;
  const std::size_t valid = valid_part(args, part);
  const auto visit = [&](std::size_t c, std::size_t at,
                         std::size_t count) HWY_ATTR {
    const SoftmaxFactor factor =
        softmax_factor(args, args.log != 0 ? total.max : chunks[c].max, total);
    if (HWY_UNLIKELY(total.sum != total.sum)) {
      fill_nan<Format>(y + at, count);
    } else if (args.log != 0) {
      log_columns<Format>(source.from(at), count, factor, y + at, false);
    } else {
      map_batches<Format>(source.from(at), count, factor, nullptr, y + at,
                          false);
    }
  };
  for_each_chunk(part.first, valid, visit);
  zero_columns(y + valid, part.columns - valid, false);
}

template <class Format, bool kMask>
HWY_INLINE void softmax(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const SoftmaxArgs*>(arguments);
  if (tile.pass == Pass::rows) {
    softmax_rows<Format, kMask>(args, tile);
    return;
  }
  const RowPart part = part_of_rows(tile, args.columns);
  if (part.sums) softmax_sum<Format, kMask>(args, tile, part);
  if (part.maps) softmax_map<Format, kMask>(args, tile, part);
}

template <class Format>
HWY_INLINE void softmax(const void* args, const Tile& tile, Result&) {
  if (operand<const std::uint8_t>(tile, SoftmaxOperand::mask) != nullptr) {
    softmax<Format, true>(args, tile);
  } else {
    softmax<Format, false>(args, tile);
  }
}

// ---- Backward

template <class Format>
HWY_NOINLINE void backward_piece(const SoftmaxBackwardArgs& args,
                                 const Pair<Format>& source, std::size_t count,
                                 float dot, typename Format::Element* dx) {
  const DF df;
  const VF scale = hn::Set(df, args.scale);
  if (args.log != 0) {
    map<Format, false, LogBackward>(source, count, dx, false, scale,
                                    hn::Set(df, dot));
  } else {
    map<Format, false, Backward>(source, count, dx, false, scale,
                                 hn::Set(df, dot));
  }
}

// accumulate_terms() adds t_j to the chains.
template <class Source>
HWY_INLINE void accumulate_terms(const SoftmaxBackwardArgs& args,
                                 const Source& source, std::size_t count,
                                 Chains<1>& sums) {
  if (args.log != 0) {
    accumulate<GradientSum>(source, count, sums);
  } else {
    accumulate<ProductSum>(source, count, sums);
  }
}

// backward_row() returns D of a row and, if dx is not null, writes it: its
// first `count` columns, and 0 after them.
template <class Format>
HWY_INLINE float backward_row(const SoftmaxBackwardArgs& args,
                              const Pair<Format>& source, std::size_t count,
                              typename Format::Element* dx) {
  const DF df;
  const std::size_t whole = count / kChains * kChains;
  LastBatch gradient, y;
  const Pair<Float32> last{gradient.source(), y.source()};
  if (whole != count) {
    pad(source.gradient, whole, count - whole, args.columns, 0, gradient);
    pad(source.y, whole, count - whole, args.columns, 0, y);
  }
  double dot = 0;
  for (std::size_t at = 0; at < count; at += kChunkColumns) {
    Chains<1> sums(0.0f);
    accumulate_terms(args, source.from(at), std::min(kChunkColumns, whole - at),
                     sums);
    if (whole != count && count - at <= kChunkColumns) {
      accumulate_terms(args, last, kChains, sums);
    }
    dot += static_cast<double>(sums.sum(0));
  }
  const auto narrow_dot = static_cast<float>(dot);
  if (dx == nullptr) return narrow_dot;
  backward_piece(args, source, whole, narrow_dot, dx);
  std::size_t written = whole;
  if (whole != count) {
    const VF scale = hn::Set(df, args.scale);
    const VF sum = hn::Set(df, narrow_dot);
    const auto store = [&](const auto& body) HWY_ATTR {
      written += store_last<Format, false>(
          body, count - whole, args.columns - whole, dx + whole, false);
    };
    if (args.log != 0) {
      store(LogBackward<Pair<Float32>>{last, scale, sum});
    } else {
      store(Backward<Pair<Float32>>{last, scale, sum});
    }
  }
  zero_columns(dx + written, args.columns - written, false);
  return narrow_dot;
}

// add_to_state() adds a piece to the sums of its row. The chains of a chunk
// continue those of the piece before.
template <class Format>
HWY_INLINE void add_to_state(const SoftmaxBackwardArgs& args,
                             const Pair<Format>& source, const RowPart& part,
                             SoftmaxBackwardState& state) {
  if (part.first == 0) state = {};
  const std::size_t valid = valid_part(args, part);
  const auto visit = [&](std::size_t, std::size_t at,
                         std::size_t count) HWY_ATTR {
    Chains<1> chains(0.0f);
    chains.load(0, state.terms);
    if (at < valid) {
      accumulate_terms(args, source.from(at), std::min(count, valid - at),
                       chains);
    }
    chains.store(0, state.terms);
    if (!ends_chunk(part.first + at + count, args.columns)) return;
    state.dot += static_cast<double>(state.terms.total());
    state.terms.clear();
  };
  for_each_chunk(part.first, part.columns, visit);
}

template <class Format>
HWY_INLINE void backward(const void* arguments, const Tile& tile, Result&) {
  using At = SoftmaxBackwardOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const SoftmaxBackwardArgs*>(arguments);
  const RowPart part = part_of_rows(tile, args.columns);
  Pair<Format> source{{operand<const Element>(tile, At::g)},
                      {operand<const Element>(tile, At::y)}};
  auto* dx = operand<Element>(tile, At::dx);
  auto* dots = operand<float>(tile, At::dot);
  if (tile.pass == Pass::rows) {
    for (std::size_t i = 0; i < part.rows; ++i) {
      const float dot =
          backward_row(args, source.from(i * part.columns),
                       valid_columns(args, part.row + i),
                       dx == nullptr ? nullptr : dx + i * part.columns);
      if (dots != nullptr) dots[i] = dot;
    }
    return;
  }
  auto& state = *static_cast<SoftmaxBackwardState*>(tile.state);
  if (part.sums) add_to_state(args, source, part, state);
  const auto dot = static_cast<float>(state.dot);
  if (part.is_last && dots != nullptr) *dots = dot;
  if (!part.maps) return;
  const std::size_t valid = valid_part(args, part);
  backward_piece(args, source, valid, dot, dx);
  zero_columns(dx + valid, part.columns - valid, false);
}

}  // namespace

SWAMP_KERNELS(scaled_softmax, kUpTo32, softmax<A>)
SWAMP_KERNELS(softmax_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
