// The kernels of attention of one query whose keys are shared between slaves,
// compiled once per target by Highway. Each step of keys has a state of its
// own; these are merged in order.

#include "slave/attention_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/attention_one.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/attention_one-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

template <class Format>
HWY_INLINE void scores(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionScoresOperand;
  using Element = const typename Format::Element;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* k = operand<Element>(tile, At::k);
  const auto* mask = operand<const float>(tile, At::mask);
  auto* e = operand<float>(tile, At::e);
  auto* largest = partial_result<float>(tile);
  const float* const q =
      widened<Format>(operand<Element>(tile, At::q), args.columns,
                      static_cast<float*>(tile.scratch));
  const std::size_t ahead = ahead_of(tile, args.columns);
  for (std::size_t at = 0, next = 0; at < tile.count; at = next) {
    const std::size_t in_grain = (tile.first + at) % kAttentionGrain;
    next = std::min(at + kAttentionGrain - in_grain, tile.count);
    if (at != 0) ++largest;
    one_scores<Format>(k + at * args.columns, next - at, args.columns, q,
                       args.scale, e + at, ahead);
    float most = in_grain == 0 ? kMinusInf : *largest;
    for (std::size_t j = at; j < next; ++j) {
      if (mask != nullptr) e[j] += mask[j];
      most = std::max(most, e[j]);
    }
    *largest = most;
  }
}

template <class Format>
HWY_INLINE void steps(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionStepsOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const std::size_t columns = args.value_columns;
  const auto* v = operand<const typename Format::Element>(tile, At::v);
  const auto* e = operand<const float>(tile, At::e);
  auto* state = operand<float>(tile, At::state);
  auto& max = *partial_result<float>(tile);
  if (tile.first == 0) max = *operand<const float>(tile, At::before);
  const std::size_t ahead = ahead_of(tile, columns);
  HWY_ALIGN float p[kMaxAttentionKeys];
  for (std::size_t i = 0; i < tile.count; ++i) {
    std::copy(e, e + args.rows, p);
    state[AttentionState::kSum] = one_softmax(p, args.rows, &max);
    state[AttentionState::kMax] = max;
    one_output<Format, false>(p, v, args.rows, columns, hn::Zero(DF()),
                              state + AttentionState::kOut, ahead);
    e += args.rows;
    v += args.rows * columns;
    state += AttentionState::kOut + columns;
  }
}

// l and o of a step are one value each, with p = 1.
HWY_INLINE void merge(const void* arguments, const Tile& tile, Result&) {
  const std::size_t sums =
      1 + static_cast<const AttentionArgs*>(arguments)->value_columns;
  static_assert(AttentionState::kOut == AttentionState::kSum + 1);
  const auto* step = operand<const float>(tile, 0);
  auto* all = partial_result<float>(tile);
  float& max = all[AttentionState::kMax];
  if (tile.first == 0) max = kMinusInf;
  const float p = 1;
  for (std::size_t i = 0; i < tile.count; ++i) {
    const float before = max;
    max = step[AttentionState::kMax];
    one_output<Float32, true>(&p, step + AttentionState::kSum, 1, sums,
                              factor_of(before, max),
                              all + AttentionState::kSum, 0);
    step += AttentionState::kSum + sums;
  }
}

}  // namespace

SWAMP_KERNELS(attention_scores, kUpTo32, scores<A>)
SWAMP_KERNELS(attention_steps, kUpTo32, steps<A>)
SWAMP_KERNELS(attention_merge, kNoFormat, merge)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
