// The loops over a row, per target. A row is read through a source, a functor:
// source(i) is the float vector at column i, and source.tail(i, count, copy)
// copies the last `count` columns and returns a source of the copy.
// Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ROW_INL_H_
#undef SWAMP_SLAVE_ROW_INL_H_
#else
#define SWAMP_SLAVE_ROW_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "slave/batch-inl.h"
#include "slave/exp-inl.h"
#include "slave/row_math.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

inline constexpr std::size_t kLanes = hn::MaxLanes(DF());
// A batch is kChains columns, held in kVectors vectors.
inline constexpr std::size_t kVectors = kChains / kLanes;
// Whether the target has enough registers for a batch.
inline constexpr bool kBatchInRegisters = kVectors <= 8;
// As many vectors whose exp is computed at once as there are registers for.
inline constexpr std::size_t kExps = kVectors <= 4 ? 4 : kVectors <= 8 ? 2 : 1;

// A body computes a result from the vector at column i. has_exp() returns
// whether it has three parts: argument(i), the exp of that, and
// finish(i, exp, ...).
template <class Body>
constexpr auto has_exp(int) -> decltype(&Body::argument, true) {
  return true;
}
template <class Body>
constexpr bool has_exp(...) {
  return false;
}

// copy_tail() copies the last elements of a row, fewer than a batch, and fills
// the last vector with copies of the first element, which raise no other
// floating-point flags.
template <class Element>
HWY_INLINE void copy_tail(const Element* from, std::size_t count,
                          Element* copy) {
  const std::size_t end = (count + kLanes - 1) / kLanes * kLanes;
  for (std::size_t i = count; i < end; ++i) copy[i] = from[0];
  std::memcpy(copy, from, count * sizeof(Element));
}

// Plain is the source of a row that is only converted to float32.
template <class Format>
struct Plain {
  using Element = typename Format::Element;
  struct Copy {
    Element data[kChains];
  };
  const Element* data;

  HWY_INLINE VF operator()(std::size_t i) const {
    return Format::load(DF(), data + i);
  }
  HWY_INLINE Plain tail(std::size_t i, std::size_t count, Copy& copy) const {
    copy_tail(data + i, count, copy.data);
    return {copy.data};
  }
  HWY_INLINE Plain from(std::size_t i) const { return {data + i}; }
};

// tree_sum() adds the lanes of a vector as a tree: first those half a vector
// apart, at last neighbours.
template <class D>
HWY_INLINE hn::TFromD<D> tree_sum(D, hn::Vec<D> v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::GetLane(v);
#else
  constexpr std::size_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  if constexpr (kBytes > 16) {
    const hn::Half<D> half;
    return tree_sum(half,
                    hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (sizeof(hn::TFromD<D>) == 4) {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  } else {
    return hn::GetLane(hn::Add(v, hn::Shuffle01(v)));
  }
#endif
}

// tree_sum() adds `count` numbers, which it overwrites, in the same order.
template <class D>
HWY_INLINE hn::TFromD<D> tree_sum(D d, hn::TFromD<D>* numbers,
                                  std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t distance = count / 2; distance >= lanes; distance /= 2) {
    for (std::size_t i = 0; i < distance; i += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, numbers + i),
                         hn::LoadU(d, numbers + i + distance)),
                 d, numbers + i);
    }
  }
  return tree_sum(d, hn::LoadU(d, numbers));
}

// Chains holds the sums or maxima that a chunk is accumulated into.
template <int kCount>
struct Chains {
  HWY_ALIGN float chain[kCount][kChains];

  HWY_INLINE explicit Chains(float initial) {
    for (auto& one : chain) {
      for (std::size_t i = 0; i < kChains; i += kLanes) {
        hn::Store(hn::Set(DF(), initial), DF(), one + i);
      }
    }
  }

  // load() continues the sums of a state, and store() puts them back.
  HWY_INLINE void load(int which, const ChainSums& sums) {
    std::memcpy(chain[which], sums.chains, sizeof sums.chains);
  }
  HWY_INLINE void store(int which, ChainSums& sums) const {
    std::memcpy(sums.chains, chain[which], sizeof sums.chains);
  }

  // sum() adds the chains as a tree.
  HWY_NOINLINE float sum(int which) {
    return tree_sum(DF(), chain[which], kChains);
  }

  // max() is the largest chain, never -0.
  HWY_NOINLINE float max() const {
    const DF df;
    auto m = hn::Load(df, chain[0]);
    for (std::size_t i = kLanes; i < kChains; i += kLanes) {
      m = hn::Max(m, hn::Load(df, chain[0] + i));
    }
    // EMU128's MaxOfLanes() starts from the lowest finite number.
    const float lowest = -std::numeric_limits<float>::infinity();
    if (hn::AllTrue(df, hn::Eq(m, hn::Set(df, lowest)))) return lowest;
    const float max = hn::GetLane(hn::MaxOfLanes(df, m));
    return max == 0 ? 0 : max;
  }
};

template <std::size_t k>
HWY_INLINE void exp_group(VF* values) {
  if constexpr (k % kExps == 0) {
    exp_each(DF(), values + k, std::make_index_sequence<kExps>());
  }
}

// accumulate_batches() calls body(i, chain...) for every vector of whole
// batches; body adds the vector at column i to its vector of each chain.
template <class Body, std::size_t... k>
HWY_INLINE void accumulate_batches(std::size_t count, const Body& body,
                                   Chains<1>& chains,
                                   std::index_sequence<k...>) {
  const DF df;
  VF a[] = {hn::Load(df, chains.chain[0] + k * kLanes)...};
  for (std::size_t i = 0; i < count; i += kChains) {
    if constexpr (has_exp<Body>(0)) {
      VF e[] = {body.argument(i + k * kLanes)...};
      (exp_group<k>(e), ...);
      (body.finish(i + k * kLanes, e[k], a[k]), ...);
    } else {
      (body(i + k * kLanes, a[k]), ...);
    }
  }
  (hn::Store(a[k], df, chains.chain[0] + k * kLanes), ...);
}
template <class Body, std::size_t... k>
HWY_INLINE void accumulate_batches(std::size_t count, const Body& body,
                                   Chains<2>& chains,
                                   std::index_sequence<k...>) {
  const DF df;
  VF a[] = {hn::Load(df, chains.chain[0] + k * kLanes)...};
  VF b[] = {hn::Load(df, chains.chain[1] + k * kLanes)...};
  for (std::size_t i = 0; i < count; i += kChains) {
    if constexpr (has_exp<Body>(0)) {
      VF e[] = {body.argument(i + k * kLanes)...};
      (exp_group<k>(e), ...);
      (body.finish(i + k * kLanes, e[k], a[k], b[k]), ...);
    } else {
      (body(i + k * kLanes, a[k], b[k]), ...);
    }
  }
  (hn::Store(a[k], df, chains.chain[0] + k * kLanes), ...);
  (hn::Store(b[k], df, chains.chain[1] + k * kLanes), ...);
}

// accumulate_one() accumulates the first `count` lanes of one vector, with the
// chains in memory.
template <class Body>
HWY_INLINE void accumulate_one(std::size_t i, std::size_t at, std::size_t count,
                               const Body& body, Chains<1>& chains) {
  const DF df;
  float* const a = chains.chain[0] + at;
  const auto before = hn::Load(df, a);
  auto after = before;
  body(i, after);
  if (count < kLanes) {
    after = hn::IfThenElse(hn::FirstN(df, count), after, before);
  }
  hn::Store(after, df, a);
}
template <class Body>
HWY_INLINE void accumulate_one(std::size_t i, std::size_t at, std::size_t count,
                               const Body& body, Chains<2>& chains) {
  const DF df;
  float* const a = chains.chain[0] + at;
  float* const b = chains.chain[1] + at;
  const auto before_a = hn::Load(df, a);
  const auto before_b = hn::Load(df, b);
  auto after_a = before_a;
  auto after_b = before_b;
  body(i, after_a, after_b);
  if (count < kLanes) {
    const auto mask = hn::FirstN(df, count);
    after_a = hn::IfThenElse(mask, after_a, before_a);
    after_b = hn::IfThenElse(mask, after_b, before_b);
  }
  hn::Store(after_a, df, a);
  hn::Store(after_b, df, b);
}

// accumulate() accumulates columns 0 .. count - 1 of a chunk. `Body` is
// constructed from a source and `constants`, and called as above. If kTail, the
// source is a copy, whose columns are numbered from 0.
template <template <class, bool kTail> class Body, int kCount, class Source,
          class... Constants>
HWY_NOINLINE void accumulate(const Source& source, std::size_t count,
                             Chains<kCount>& chains,
                             const Constants&... constants) {
  const std::size_t whole = count / kChains * kChains;
  const Body<Source, false> body{source, constants...};
  if constexpr (kBatchInRegisters) {
    accumulate_batches(whole, body, chains,
                       std::make_index_sequence<kVectors>());
  } else {
    for (std::size_t i = 0; i < whole; i += kChains) {
      for (std::size_t k = 0; k < kChains; k += kLanes) {
        accumulate_one(i + k, k, kLanes, body, chains);
      }
    }
  }
  if (whole == count) return;
  typename Source::Copy copy;
  const Source tail = source.tail(whole, count - whole, copy);
  const Body<Source, true> tail_body{tail, constants...};
  for (std::size_t k = 0; k < count - whole; k += kLanes) {
    accumulate_one(k, k, count - whole - k, tail_body, chains);
  }
}

// ---- Sums in double

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr std::size_t kWideLanes = 1;
#else
inline constexpr std::size_t kWideLanes = kLanes / 2;
#endif
inline constexpr std::size_t kHalves = kLanes / kWideLanes;

// widen_half() is lanes h * kWideLanes .. of a vector.
template <std::size_t h>
HWY_INLINE VD widen_half(VF value) {
  const DD dd;
#if HWY_TARGET == HWY_SCALAR
  return hn::PromoteTo(dd, value);
#else
  const hn::Half<DF> dh;
  if constexpr (h == 0) {
    return hn::PromoteTo(dd, hn::LowerHalf(dh, value));
  } else {
    return hn::PromoteTo(dd, hn::UpperHalf(dh, value));
  }
#endif
}

// add_wide() adds a vector of floats to doubles in memory.
HWY_INLINE void add_wide(VF value, double* sums) {
  const DD dd;
  hn::StoreU(hn::Add(hn::LoadU(dd, sums), widen_half<0>(value)), dd, sums);
  if constexpr (kHalves == 2) {
    double* const high = sums + kWideLanes;
    hn::StoreU(hn::Add(hn::LoadU(dd, high), widen_half<1>(value)), dd, high);
  }
}

// ---- Bodies of softmax and cross entropy

template <class Source, bool kTail>
struct Largest {
  Source source;

  HWY_INLINE void operator()(std::size_t i, VF& max) const {
    max = hn::Max(max, source(i));
  }
};

// largest() is the largest element; undefined if one is nan.
template <class Source>
HWY_INLINE float largest(const Source& source, std::size_t count) {
  Chains<1> maxima(-std::numeric_limits<float>::infinity());
  accumulate<Largest>(source, count, maxima);
  return maxima.max();
}

template <class Source, bool kTail>
struct ExpSum {
  Source source;
  VF shift;
  const std::uint8_t* next;  // a row to prefetch, or null

  HWY_INLINE VF argument(std::size_t i) const {
    return hn::Sub(source(i), shift);
  }
  HWY_INLINE void finish(std::size_t i, VF e, VF& sum) const {
    if (next != nullptr) {
      hwy::Prefetch(next + i * sizeof(typename Source::Element));
    }
    sum = hn::Add(sum, e);
  }
  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    finish(i, exp_nonpositive(DF(), argument(i)), sum);
  }
};

// ---- Output

// store_vector() stores a vector of output, stream_vector() bypasses the
// caches. If kNumber, it must not hold nan.
template <class Format, bool kNumber>
HWY_INLINE void store_vector(VF value, typename Format::Element* at) {
  const hn::Rebind<typename Format::Element, DF> d;
  if (kNumber) {
    hn::StoreU(Format::narrow_number(DF(), value), d, at);
  } else {
    hn::StoreU(Format::narrow(DF(), value), d, at);
  }
}
template <class Format, bool kNumber>
HWY_INLINE void stream_vector(VF value, typename Format::Element* at) {
  const hn::Rebind<typename Format::Element, DF> d;
  if (kNumber) {
    hn::Stream(Format::narrow_number(DF(), value), d, at);
  } else {
    hn::Stream(Format::narrow(DF(), value), d, at);
  }
}

// is_lines() returns whether an array is whole cache lines: a non-temporal
// store of a part of a line is slow.
template <class Element>
HWY_INLINE bool is_lines(const Element* at, std::size_t count) {
  return (reinterpret_cast<std::uintptr_t>(at) | (count * sizeof(Element))) %
             64 ==
         0;
}

// map_exps() computes and stores kExps vectors of a body that has an exp.
template <class Format, bool kNumber, class Body, std::size_t... k>
HWY_INLINE void map_exps(const Body& body, std::size_t i,
                         typename Format::Element* out, bool stream,
                         std::index_sequence<k...>) {
  VF e[] = {body.argument(i + k * kLanes)...};
  exp_each(DF(), e, std::index_sequence<k...>());
  ((e[k] = body.finish(i + k * kLanes, e[k])), ...);
  if (stream) {
    (stream_vector<Format, kNumber>(e[k], out + k * kLanes), ...);
  } else {
    (store_vector<Format, kNumber>(e[k], out + k * kLanes), ...);
  }
}

// map() stores body(i) for columns 0 .. count - 1. `Body` is constructed from a
// source and `constants`. If `stream`, stores bypass the caches, provided that
// `out` is whole lines.
template <class Format, bool kNumber, template <class> class Body, class Source,
          class... Constants>
HWY_INLINE void map(const Source& source, std::size_t count,
                    typename Format::Element* out, bool stream,
                    const Constants&... constants) {
  using Element = typename Format::Element;
  const Body<Source> body{source, constants...};
  std::size_t i = 0;
  if constexpr (kExps > 1 && has_exp<Body<Source>>(0)) {
    const bool lines = kHasNonTemporalStores && stream && is_lines(out, count);
    for (; i + kExps * kLanes <= count; i += kExps * kLanes) {
      map_exps<Format, kNumber>(body, i, out + i, lines,
                                std::make_index_sequence<kExps>());
    }
  }
  if (kHasNonTemporalStores && stream && is_lines(out, count)) {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      stream_vector<Format, kNumber>(body(i), out + i);
      stream_vector<Format, kNumber>(body(i + kLanes), out + i + kLanes);
    }
  } else {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const auto first = body(i);
      const auto second = body(i + kLanes);
      store_vector<Format, kNumber>(first, out + i);
      store_vector<Format, kNumber>(second, out + i + kLanes);
    }
  }
  if (i == count) return;
  typename Source::Copy copy;
  Element results[kChains];
  const Source tail = source.tail(i, count - i, copy);
  const Body<Source> tail_body{tail, constants...};
  for (std::size_t k = 0; k < count - i; k += kLanes) {
    store_vector<Format, kNumber>(tail_body(k), results + k);
  }
  std::memcpy(out + i, results, (count - i) * sizeof(Element));
}

// fill_nan() writes the output of a row whose result is nan.
template <class Format>
HWY_NOINLINE void fill_nan(typename Format::Element* out, std::size_t count) {
  const auto bits =
      static_cast<typename Format::Bits>(Format::kFormat.quiet_nan());
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ROW_INL_H_
