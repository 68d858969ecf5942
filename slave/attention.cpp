// The kernels of attention, forward, compiled once per target by Highway. Each
// lane of a vector is one query of a panel; keys and values stream past it in
// steps, as in FlashAttention: the products of a step become probabilities in
// place, and sum and output are rescaled when the maximum grows.

#include "slave/attention_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/attention.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/attention_one-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// ---- Packing and unpacking

// pack_panel() computes the lanes of a panel.
template <class Format>
HWY_INLINE void pack_panel(const AttentionArgs& args,
                           const typename Format::Element* x, float* packed) {
  const std::size_t columns = args.columns, lanes = args.lanes;
  const Source<Format> rows{x, static_cast<std::int64_t>(columns), 1, args.rows,
                            columns};
  const std::size_t visited = for_terms(
      rows, [&](auto d, std::size_t lane, std::size_t c, auto value)
                HWY_ATTR { hn::StoreU(value, d, packed + c * lanes + lane); });
  for (std::size_t c = 0; visited < lanes && c < columns; ++c) {
    float* const to = packed + c * lanes;
    for (std::size_t i = visited; i < args.rows; ++i) {
      to[i] = Format::widen(x[i * columns + c]);
    }
    std::fill(to + args.rows, to + lanes, 0.0f);
  }
}

template <class Format>
HWY_INLINE void pack(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* x =
      operand<const typename Format::Element>(tile, AttentionPackOperand::x);
  auto* packed = operand<float>(tile, AttentionPackOperand::packed);
  auto* wide = operand<float>(tile, AttentionPackOperand::wide);
  const std::size_t columns = args.columns;
  const std::size_t padded = attention_padded(columns);
  for (std::size_t panel = 0; panel < tile.count; ++panel) {
    pack_panel<Format>(args, x, packed);
    for (std::size_t i = 0; wide != nullptr && i < args.rows; ++i) {
      float* const to = wide + i * padded;
      const float* const row = widened<Format>(x + i * columns, columns, to);
      if (row != to) std::memcpy(to, row, columns * sizeof(float));
      std::fill(to + columns, to + padded, 0.0f);
    }
    x += args.rows * columns;
    packed +=
        tile.layout[AttentionPackOperand::packed].unit_step / sizeof(float);
    if (wide == nullptr) continue;
    wide += tile.layout[AttentionPackOperand::wide].unit_step / sizeof(float);
  }
}

// mask_lanes() fills `lanes` values of each unit. Units are transposed a few at
// once if the elements of a unit are apart.
template <class Element, class Widen>
HWY_INLINE void mask_lanes(const AttentionMaskArgs& args, const Tile& tile,
                           Widen widen) {
  const Operand& layout = tile.layout[AttentionMaskOperand::mask];
  const auto* from = operand<const std::byte>(tile, AttentionMaskOperand::mask);
  auto* to = operand<float>(tile, AttentionMaskOperand::values);
  const std::size_t step = args.shared != 0      ? 0
                           : layout.lines() == 1 ? sizeof(Element)
                                                 : layout.line_step;
  const auto value = [&](std::size_t unit, std::size_t lane) {
    Element element;
    std::memcpy(&element, from + unit * layout.unit_step + lane * step,
                sizeof element);
    return widen(element);
  };
  const std::size_t lanes = args.lanes, rows = args.rows;
  constexpr std::size_t kUnits = 32;
  for (std::size_t begin = 0; begin < tile.count; begin += kUnits) {
    const std::size_t end = std::min(begin + kUnits, tile.count);
    if (layout.lines() == 1) {
      for (std::size_t unit = begin; unit < end; ++unit) {
        for (std::size_t lane = 0; lane < rows; ++lane) {
          to[unit * lanes + lane] = value(unit, lane);
        }
      }
    } else {
      for (std::size_t lane = 0; lane < rows; ++lane) {
        for (std::size_t unit = begin; unit < end; ++unit) {
          to[unit * lanes + lane] = value(unit, lane);
        }
      }
    }
    for (std::size_t unit = begin; rows < lanes && unit < end; ++unit) {
      std::fill(to + unit * lanes + rows, to + (unit + 1) * lanes, 0.0f);
    }
  }
}

template <class Format>
HWY_INLINE void mask(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionMaskArgs*>(arguments);
  if (args.bytes != 0) {
    mask_lanes<std::uint8_t>(args, tile, [](std::uint8_t byte) {
      return byte != 0 ? 0.0f : kMinusInf;
    });
    return;
  }
  using Element = typename Format::Element;
  mask_lanes<Element>(args, tile,
                      [](Element value) { return Format::widen(value); });
}

template <class Format>
HWY_INLINE void output(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionOutputOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  auto* out = operand<typename Format::Element>(tile, At::out);
  const auto* state = operand<const float>(tile, At::state);
  auto* lse = operand<float>(tile, At::lse);
  const std::size_t columns = args.value_columns, lanes = args.lanes;
  for (std::size_t panel = 0; panel < tile.count; ++panel) {
    const float* const max = state + AttentionState::kMax * lanes;
    const float* const sum = state + AttentionState::kSum * lanes;
    const float* const values = state + AttentionState::kOut * lanes;
    for (std::size_t i = 0; i < args.rows; ++i) {
      lse[i] = attention_lse(max[i], sum[i]).high;
    }
    store_panel<Format>(
        {values, static_cast<std::int64_t>(lanes), 1, columns, args.rows}, out,
        columns * sizeof *out,
        [&](auto d, std::size_t row, auto value) HWY_ATTR {
          if (sum[row] == 0) return hn::Zero(d);
          return hn::Div(value, hn::Set(d, sum[row]));
        });
    out += args.rows * columns;
    lse += args.rows;
    state += AttentionState::bytes(lanes, columns) / sizeof(float);
  }
}

// ---- Softmax of a step

// softmax_step() replaces the scores of a step, whose rows are keys, by p, and
// updates m and l. factor[lane] becomes what the output is multiplied
// by.
template <bool kMask, std::size_t... g>
HWY_INLINE void softmax_lanes(float* scores, const float* mask,
                              std::size_t count, std::size_t lanes,
                              std::size_t lane, const Visible& visible,
                              float* max, float* sum, float* factor,
                              std::index_sequence<g...> group) {
  const DF df;
  const VF before[] = {hn::LoadU(df, max + g * kLanes)...};
  VF m[] = {before[g]...};
  const bool all = visible.all;
  for (std::size_t j = 0; j < count; ++j) {
    float* const at = scores + j * lanes;
    VF e[] = {hn::LoadU(df, at + g * kLanes)...};
    if constexpr (kMask) {
      ((e[g] = hn::Add(e[g], hn::LoadU(df, mask + j * lanes + g * kLanes))),
       ...);
    }
    if (!all) {
      ((e[g] = hn::IfThenElse(visible.lanes(j, lane + g * kLanes), e[g],
                              hn::Set(df, kMinusInf))),
       ...);
    }
    if (kMask || !all) (hn::StoreU(e[g], df, at + g * kLanes), ...);
    ((m[g] = hn::Max(m[g], e[g])), ...);
  }
  const VF minus_inf = hn::Set(df, kMinusInf);
  const VF shift[] = {hn::IfThenZeroElse(hn::Eq(m[g], minus_inf), m[g])...};
  VF a[] = {hn::Sub(before[g], shift[g])...};
  exp_each(df, a, group);
  (hn::StoreU(m[g], df, max + g * kLanes), ...);
  (hn::StoreU(a[g], df, factor + g * kLanes), ...);
  VF l[] = {(static_cast<void>(g), hn::Zero(df))...};
  for (std::size_t j = 0; j < count; ++j) {
    float* const at = scores + j * lanes;
    VF p[] = {hn::Sub(hn::LoadU(df, at + g * kLanes), shift[g])...};
    exp_each(df, p, group);
    (hn::StoreU(p[g], df, at + g * kLanes), ...);
    ((l[g] = hn::Add(l[g], p[g])), ...);
  }
  (hn::StoreU(exact_fma(df, hn::LoadU(df, sum + g * kLanes), a[g], l[g]), df,
              sum + g * kLanes),
   ...);
}

HWY_NOINLINE void softmax_step(float* scores, const float* mask,
                               std::size_t count, std::size_t lanes,
                               const Visible& visible, float* max, float* sum,
                               float* factor) {
  for_groups(lanes, [&](auto group, std::size_t lane) HWY_ATTR {
    if (mask != nullptr) {
      softmax_lanes<true>(scores + lane, mask + lane, count, lanes, lane,
                          visible, max + lane, sum + lane, factor + lane,
                          group);
    } else {
      softmax_lanes<false>(scores + lane, nullptr, count, lanes, lane, visible,
                           max + lane, sum + lane, factor + lane, group);
    }
  });
}

// visible_keys() describes `count` keys from `first` on. Lane i sees the keys
// below position.visible + i.
HWY_INLINE void visible_keys(const AttentionPosition& position,
                             std::size_t first, std::size_t count,
                             std::size_t lanes, Visible& visible) {
  const std::int64_t left = position.visible - static_cast<std::int64_t>(first);
  visible.all = left >= static_cast<std::int64_t>(count);
  if (visible.all) return;
  const auto most = static_cast<std::int64_t>(lanes);
  for (std::size_t j = 0; j < count; ++j) {
    visible.begin[j] = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        static_cast<std::int64_t>(j) + 1 - left, 0, most));
    visible.end[j] = static_cast<std::int32_t>(most);
  }
}

// one_query() computes the keys of a tile for one query, which sees all of
// them.
template <class Format>
HWY_INLINE void one_query(const AttentionArgs& args, const Tile& tile,
                          const float* q, const float* mask, float* state) {
  using At = AttentionOperand;
  const DF df;
  const std::size_t columns = args.columns, value_columns = args.value_columns;
  const auto* k = operand<const typename Format::Element>(tile, At::k);
  const auto* v = operand<const typename Format::Element>(tile, At::v);
  const std::size_t step = attention_keys(columns, value_columns);
  HWY_ALIGN float p[kMaxAttentionKeys];
  for (std::size_t at = 0; at < tile.count; at += step) {
    const std::size_t count = std::min(step, tile.count - at);
    one_scores<Format>(k, count, columns, q, args.scale, p,
                       ahead_of(tile, columns));
    for (std::size_t j = 0; mask != nullptr && j < count; ++j) {
      p[j] += mask[at + j];
    }
    float& max = state[AttentionState::kMax];
    float& sum = state[AttentionState::kSum];
    const float before = max;
    const float of_step = one_softmax(p, count, &max);
    const VF a = factor_of(before, max);
    sum = hn::GetLane(exact_fma(df, hn::Set(df, sum), a, hn::Set(df, of_step)));
    one_output<Format, true>(p, v, count, value_columns, a,
                             state + AttentionState::kOut,
                             ahead_of(tile, value_columns));
    k += count * columns;
    v += count * value_columns;
  }
}

template <class Format>
HWY_INLINE void attention(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const std::size_t columns = args.columns, lanes = args.lanes;
  const std::size_t value_columns = args.value_columns;
  const auto* k = operand<const typename Format::Element>(tile, At::k);
  const auto* v = operand<const typename Format::Element>(tile, At::v);
  const auto* rows = operand<const typename Format::Element>(tile, At::q);
  const auto* mask = operand<const float>(tile, At::mask);
  const auto& position = *operand<const AttentionPosition>(tile, At::position);
  auto* state = partial_result<float>(tile);
  float* const max = state + AttentionState::kMax * lanes;
  float* const sum = state + AttentionState::kSum * lanes;
  float* const out = state + AttentionState::kOut * lanes;
  if (tile.first == 0) std::fill(max, max + lanes, kMinusInf);
  auto* const q = static_cast<float*>(tile.scratch);
  if (lanes == 1) {
    return one_query<Format>(args, tile, widened<Format>(rows, columns, q),
                             mask, state);
  }
  const std::size_t step = attention_keys(columns, value_columns);
  float* const scores = q + columns * lanes;
  float* const copy = scores + step * lanes;
  pack_panel<Format>(args, rows, q);
  HWY_ALIGN float factor[kMaxAttentionLanes];
  Visible visible;
  for (std::size_t at = 0; at < tile.count; at += step) {
    const std::size_t count = std::min(step, tile.count - at);
    visible_keys(position, tile.first + at, count, lanes, visible);
    product(Scores{args.scale},
            {widened<Format>(k, count * columns, copy), columns, 1}, count,
            columns, q, lanes, scores);
    softmax_step(scores, mask, count, lanes, visible, max, sum, factor);
    accumulate(scores, widened<Format>(v, count * value_columns, copy), count,
               value_columns, lanes, factor, visible, out);
    k += count * columns;
    v += count * value_columns;
    if (mask != nullptr) mask += count * lanes;
  }
}

}  // namespace

SWAMP_KERNELS(attention_pack, kUpTo32, pack<A>)
SWAMP_KERNELS(attention_mask, kUpTo32, mask<A>)
SWAMP_KERNELS(attention, kUpTo32, attention<A>)
SWAMP_KERNELS(attention_output, kUpTo32, output<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
