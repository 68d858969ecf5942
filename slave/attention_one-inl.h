// A step of attention of one query, per target: the lanes of a vector are keys,
// then columns of the value. Included once per target, like Highway's own
// -inl.h.
#if defined(SWAMP_SLAVE_ATTENTION_ONE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_ATTENTION_ONE_INL_H_
#undef SWAMP_SLAVE_ATTENTION_ONE_INL_H_
#else
#define SWAMP_SLAVE_ATTENTION_ONE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "slave/attention-inl.h"
#include "slave/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {  // g++ inlines the lambdas of local functions only

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// shift_of() returns what is subtracted from a score before exp.
HWY_INLINE float shift_of(float max) { return max == kMinusInf ? 0 : max; }

// ahead_of() returns how many bytes are prefetched after a row.
HWY_INLINE std::size_t ahead_of(const Tile& tile, std::size_t columns) {
  // One step of float32, two of 16 bits.
  return tile.prefetch_bytes == 0
             ? 0
             : sizeof(float) * attention_keys(columns, columns) * columns;
}

// one_scores() computes the scores of `count` keys. It prefetches `ahead` bytes
// after the keys.
template <class Format>
HWY_INLINE void one_scores(const typename Format::Element* k, std::size_t count,
                           std::size_t columns, const float* q, float scale,
                           float* scores, std::size_t ahead) {
  const Source<Format> keys{k, static_cast<std::int64_t>(columns), 1, count,
                            columns};
  const auto dots = [&](auto d, std::size_t lane) HWY_ATTR {
    using D = decltype(d);
    prefetch(keys.at(lane, 0), hn::MaxLanes(d) * columns, ahead);
    hn::Vec<D> sum = hn::Zero(d);
    const auto add = [&](std::size_t c, hn::Vec<D> key) HWY_ATTR {
      sum = exact_fma(d, key, hn::Set(d, q[c]), sum);
    };
    std::size_t c =
        for_words(d, keys, lane, [&](std::size_t w, hn::Vec<D> word) HWY_ATTR {
          if constexpr (kWordTerms<Format> == 1) {
            add(w, word);
          } else {
            const auto pair = hn::BitCast(hn::RebindToUnsigned<D>(), word);
            add(2 * w, widen_half<Format>(d, pair, false));
            add(2 * w + 1, widen_half<Format>(d, pair, true));
          }
        });
    for (; c < columns; ++c) {
      float key[hn::MaxLanes(D())];
      for (std::size_t i = 0; i < hn::MaxLanes(D()); ++i) {
        key[i] = Format::widen(*keys.at(lane + i, c));
      }
      add(c, hn::LoadU(d, key));
    }
    hn::StoreU(hn::Mul(sum, hn::Set(d, scale)), d, scores + lane);
  };
  const DF df;
  for (std::size_t j = for_lanes(count, dots); j < count; ++j) {
    VF sum = hn::Zero(df);
    for (std::size_t c = 0; c < columns; ++c) {
      sum = exact_fma(df, hn::Set(df, Format::widen(*keys.at(j, c))),
                      hn::Set(df, q[c]), sum);
    }
    scores[j] = hn::GetLane(hn::Mul(sum, hn::Set(df, scale)));
  }
}

// one_softmax() replaces the scores of a step by p. *max is m of the steps
// before it, and becomes m. It returns the sum of p. `p` has room for whole
// vectors.
HWY_NOINLINE float one_softmax(float* p, std::size_t count, float* max) {
  const DF df;
  const std::size_t end = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(p + count, p + end, kMinusInf);
  VF most = hn::Set(df, *max);
  for (std::size_t j = 0; j < end; j += kLanes) {
    most = hn::Max(most, hn::LoadU(df, p + j));
  }
  *max = hn::GetLane(hn::MaxOfLanes(df, most));
  const VF shift = hn::Set(df, shift_of(*max));
  for (std::size_t j = 0; j < end; j += kLanes) {
    const VF e = hn::LoadU(df, p + j);
    hn::StoreU(exp_nonpositive(df, hn::Sub(e, shift)), df, p + j);
  }
  float sum = 0;
  for (std::size_t j = 0; j < count; ++j) sum += p[j];
  return sum;
}

// factor_of() returns a of a step with this m, and with m before it.
HWY_INLINE VF factor_of(float before, float max) {
  const DF df;
  return exp_nonpositive(df, hn::Set(df, before - shift_of(max)));
}

// one_output() computes the sums of fma(p_j, v_jc) of a step. If kMerge, it
// adds them to result * a. It prefetches `ahead` bytes after the values.
template <class Format, bool kMerge>
HWY_INLINE void one_output(const float* p, const typename Format::Element* v,
                           std::size_t count, std::size_t columns, VF a,
                           float* result, std::size_t ahead) {
  const DF df;
  const auto sum_of = [&](std::size_t c, VF before, const auto& load) HWY_ATTR {
    VF sum = hn::Zero(df);
    for (std::size_t j = 0; j < count; ++j) {
      if (c == 0) prefetch(v + j * columns, columns, ahead);
      sum = exact_fma(df, load(v + j * columns + c), hn::Set(df, p[j]), sum);
    }
    return kMerge ? exact_fma(df, before, a, sum) : sum;
  };
  std::size_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    hn::StoreU(
        sum_of(c, hn::LoadU(df, result + c),
               [&](const auto* at) HWY_ATTR { return Format::load(df, at); }),
        df, result + c);
  }
  for (; c < columns; ++c) {
    result[c] = hn::GetLane(
        sum_of(c, hn::Set(df, result[c]), [&](const auto* at) HWY_ATTR {
          return hn::Set(df, Format::widen(*at));
        }));
  }
}

}  // namespace
}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_ATTENTION_ONE_INL_H_
