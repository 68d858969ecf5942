// The kernels of attention, backward, compiled once per target by Highway. A
// panel is keys, one in each lane, and the queries stream past it: dk and dv
// are sums of the panel, which also gives a term of dq to each query. The
// probabilities are computed again from lse.

#include "slave/attention_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/attention_backward.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// ---- Rows

template <class Format>
struct Rows {
  struct Copy {
    typename Plain<Format>::Copy a, b;
  };
  Plain<Format> a, b;

  HWY_INLINE Rows tail(std::size_t i, std::size_t count, Copy& copy) const {
    return {a.tail(i, count, copy.a), b.tail(i, count, copy.b)};
  }
};

template <class Source, bool kTail>
struct ProductSum {
  Source source;

  HWY_INLINE void operator()(std::size_t i, VF& sum) const {
    sum = hn::Add(sum, hn::Mul(source.a(i), source.b(i)));
  }
};

template <class Format>
HWY_INLINE void dot_rows(const void* arguments, const Tile& tile,
                         Result& flags) {
  using At = AttentionDotOperand;
  using Element = typename Format::Element;
  const std::size_t columns =
      static_cast<const AttentionArgs*>(arguments)->value_columns;
  const auto* g = operand<const Element>(tile, At::g);
  const auto* out = operand<const Element>(tile, At::out);
  const auto* lse = operand<const float>(tile, At::lse);
  auto* result = operand<AttentionDot>(tile, At::dot);
  for (std::size_t i = 0; i < tile.count; ++i) {
    Chains<1> sums(0.0f);
    accumulate<ProductSum>(Rows<Format>{{g}, {out}}, columns, sums);
    result[i] = {{lse[i], 0}, sums.sum(0)};
    if (HWY_UNLIKELY(
            has_lost_lse(lse[i], std::is_same<Format, Float32>::value))) {
      flags.flag(tile.first + i, 1);
    }
    g += columns;
    out += columns;
  }
}

// store_scaled() rounds row * scale, of padded rows. `scaled` is memory for a
// row.
template <class Format>
HWY_INLINE void store_scaled(const float* row, float scale, std::size_t columns,
                             float* scaled, typename Format::Element* out) {
  const DF df;
  const VF factor = hn::Set(df, scale);
  for (std::size_t c = 0; c < columns; c += kLanes) {
    const VF value = hn::Mul(hn::LoadU(df, row + c), factor);
    hn::StoreU(hn::Add(value, hn::Zero(df)), df, scaled + c);
  }
  store_row<Format>(scaled, columns, out);
}

// add_lines() computes `count` sums of a unit, whole vectors.
HWY_INLINE void add_lines(const AttentionArgs& args, const Operand& layout,
                          const float* terms, const float* sum,
                          std::size_t count, float* to) {
  const DF df;
  const std::size_t lines = layout.lines();
  for (std::size_t i = 0; i < count; i += kLanes) {
    VF total = args.continues != 0 ? hn::LoadU(df, sum + i) : hn::Zero(df);
    const float* term = terms + i;
    for (std::size_t line = 0; line < lines; ++line) {
      total = hn::Add(total, hn::LoadU(df, term));
      term += layout.line_step / sizeof(float);
    }
    hn::StoreU(total, df, to + i);
  }
}

// for_sums() computes units of `count` sums, and calls store(sums, unit) with
// those that are rounded to x.
template <class Store>
HWY_INLINE void for_sums(const AttentionArgs& args, const Tile& tile,
                         std::size_t count, const Store& store) {
  using At = AttentionSumOperand;
  const Operand& layout = tile.layout[At::terms];
  const bool has_x = tile.operands[At::x] != nullptr;
  auto* sum = operand<float>(tile, At::sum);
  const auto* terms = operand<const float>(tile, At::terms);
  auto* const scratch = static_cast<float*>(tile.scratch);
  for (std::size_t i = 0; i < tile.count; ++i) {
    add_lines(args, layout, terms, sum, count, has_x ? scratch : sum);
    terms += layout.unit_step / sizeof(float);
    if (sum != nullptr) sum += count;
    if (has_x) store(scratch, i);
  }
}

template <class Format>
HWY_INLINE void sum_lines(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  auto* const x =
      operand<typename Format::Element>(tile, AttentionSumOperand::x);
  for_sums(args, tile, attention_padded(args.columns),
           [&](float* sums, std::size_t i) HWY_ATTR {
             store_scaled<Format>(sums, args.scale, args.columns, sums,
                                  x + i * args.columns);
           });
}

template <class Format>
HWY_INLINE void unpack(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const std::size_t columns = args.columns, lanes = args.lanes;
  const Operand& layout = tile.layout[AttentionSumOperand::x];
  auto* const x =
      operand<typename Format::Element>(tile, AttentionSumOperand::x);
  for_sums(
      args, tile, columns * lanes,
      [&](const float* sums, std::size_t unit) HWY_ATTR {
        store_panel<Format>(
            {sums, static_cast<std::int64_t>(lanes), 1, columns, args.rows},
            x + unit * (layout.unit_step / sizeof *x), layout.line_step,
            [&](auto d, std::size_t, auto value)
                HWY_ATTR { return hn::Mul(value, hn::Set(d, args.scale)); });
      });
}

// ---- Gradients

template <std::size_t... g>
HWY_INLINE void gradient_lanes(float* scores, float* products,
                               const float* mask, const AttentionDot* dots,
                               std::size_t count, std::size_t lanes,
                               std::size_t lane, const Visible& visible,
                               std::index_sequence<g...> group) {
  const DF df;
  const auto zero = hn::Zero(df);
  for (std::size_t j = 0; j < count; ++j) {
    float* const p_at = scores + j * lanes + lane;
    float* const s_at = products + j * lanes + lane;
    VF p[] = {hn::LoadU(df, p_at + g * kLanes)...};
    if (mask != nullptr) {
      const float* const add = mask + j * lanes + lane;
      ((p[g] = hn::Add(p[g], hn::LoadU(df, add + g * kLanes))), ...);
    }
    ((p[g] = hn::Sub(p[g], hn::Set(df, dots[j].lse.high))), ...);
    if (HWY_UNLIKELY(dots[j].lse.low != 0)) {
      ((p[g] = hn::Sub(p[g], hn::Set(df, dots[j].lse.low))), ...);
    }
    // Min() would not keep nan on every target.
    ((p[g] = hn::IfThenZeroElse(hn::Gt(p[g], zero), p[g])), ...);
    exp_each(df, p, group);
    const auto dot = hn::Set(df, dots[j].dot);
    VF s[] = {hn::Mul(p[g], hn::Sub(hn::LoadU(df, s_at + g * kLanes), dot))...};
    if (!visible.all) {
      const hn::Mask<DF> seen[] = {visible.lanes(j, lane + g * kLanes)...};
      ((p[g] = hn::IfThenElseZero(seen[g], p[g])), ...);
      ((s[g] = hn::IfThenElseZero(seen[g], s[g])), ...);
    }
    (hn::StoreU(p[g], df, p_at + g * kLanes), ...);
    (hn::StoreU(s[g], df, s_at + g * kLanes), ...);
  }
}

// gradients() replaces the scores of a step, whose rows are queries, by p, and
// the products of gradient and value by s.
HWY_NOINLINE void gradients(float* scores, float* products, const float* mask,
                            const AttentionDot* dots, std::size_t count,
                            std::size_t lanes, const Visible& visible) {
  for_groups(lanes, [&](auto group, std::size_t lane) HWY_ATTR {
    gradient_lanes(scores, products, mask, dots, count, lanes, lane, visible,
                   group);
  });
}

// visible_lanes() describes `count` queries from unit `first` on. Returns
// whether one of them sees a lane.
HWY_INLINE bool visible_lanes(std::int64_t visible_of_first, std::size_t count,
                              std::size_t lanes, Visible& visible) {
  const auto most = static_cast<std::int64_t>(lanes);
  visible.all = visible_of_first >= most;
  if (visible.all) return true;
  for (std::size_t j = 0; j < count; ++j) {
    visible.begin[j] = 0;
    visible.end[j] = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        visible_of_first + static_cast<std::int64_t>(j), 0, most));
  }
  return visible.end[count - 1] != 0;
}

// sum_queries() computes rows of dq, `padded` floats each, from s and the rows
// of the keys that are visible.
HWY_INLINE void sum_queries(const Chain& kind, const float* s,
                            const float* keys, std::size_t count,
                            std::size_t lanes, std::size_t rows,
                            std::size_t padded, const Visible& visible,
                            float* dq) {
  if (HWY_LIKELY(visible.all || !has_nonfinite(keys, rows * padded))) {
    product(kind, {s, lanes, 1}, count, rows, keys, padded, dq);
    return;
  }
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t seen =
        std::min(rows, static_cast<std::size_t>(visible.end[j]));
    product(kind, {s + j * lanes, lanes, 1}, 1, seen, keys, padded,
            dq + j * padded);
  }
}

template <class Format>
HWY_INLINE void backward(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionBackwardOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const std::size_t columns = args.columns, lanes = args.lanes;
  const std::size_t value_columns = args.value_columns;
  constexpr std::size_t step = kAttentionQueries;
  const std::size_t padded = attention_padded(columns);
  const auto* q = operand<const Element>(tile, At::q);
  const auto* g = operand<const Element>(tile, At::g);
  const auto* dots = operand<const AttentionDot>(tile, At::dot);
  const auto* mask = operand<const float>(tile, At::mask);
  auto* dq = operand<float>(tile, At::dq);
  const auto* packed_k = operand<const float>(tile, At::keys);
  const float* const packed_v = packed_k + columns * lanes;
  const float* const keys = packed_v + value_columns * lanes;
  auto* dk = partial_result<float>(tile);
  auto* p = static_cast<float*>(tile.scratch);
  float* const s = p + step * lanes;
  float* const q_copy = s + step * lanes;
  float* const g_copy = q_copy + step * columns;
  const Chain chain{args.continues != 0};
  Visible visible;
  for (std::size_t at = 0; at < tile.count; at += step) {
    const std::size_t count = std::min(step, tile.count - at);
    if (at != 0 && tile.grain_units != 0 &&
        (tile.first + at) % tile.grain_units == 0) {
      dk += (columns + value_columns) * lanes;
    }
    float* const dv = dk + columns * lanes;
    const auto first = static_cast<std::int64_t>(tile.first + at);
    if (visible_lanes(args.visible + first, count, lanes, visible)) {
      const float* const wide_q =
          widened<Format>(q + at * columns, count * columns, q_copy);
      const float* const wide_g = widened<Format>(
          g + at * value_columns, count * value_columns, g_copy);
      product(Scores{args.scale}, {wide_q, columns, 1}, count, columns,
              packed_k, lanes, p);
      product(Scores{1}, {wide_g, value_columns, 1}, count, value_columns,
              packed_v, lanes, s);
      gradients(p, s, mask == nullptr ? nullptr : mask + at * lanes, dots + at,
                count, lanes, visible);
      accumulate(p, wide_g, count, value_columns, lanes, nullptr, visible, dv);
      accumulate(s, wide_q, count, columns, lanes, nullptr, visible, dk);
      sum_queries(chain, s, keys, count, lanes, args.rows, padded, visible,
                  dq + at * padded);
    } else if (!chain.continues) {
      std::fill(dq + at * padded, dq + (at + count) * padded, 0.0f);
    }
  }
}

}  // namespace

SWAMP_KERNELS(attention_dot, kUpTo32, dot_rows<A>)
SWAMP_KERNELS(attention_backward, kUpTo32, backward<A>)
SWAMP_KERNELS(attention_sum, kUpTo32, sum_lines<A>)
SWAMP_KERNELS(attention_unpack, kUpTo32, unpack<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
