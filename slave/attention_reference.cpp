// The scalar references of attention, its gradients and their packing: the
// formulas of slave/attention_args.h in plain loops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "slave/attention_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

template <class Format>
void pack(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* x = static_cast<typename Format::Element*>(
      tile.operands[AttentionPackOperand::x]);
  auto* packed =
      static_cast<float*>(tile.operands[AttentionPackOperand::packed]);
  auto* wide = static_cast<float*>(tile.operands[AttentionPackOperand::wide]);
  for (std::size_t panel = 0; panel < tile.count; ++panel) {
    float* to = packed;
    for (std::size_t c = 0; c < args.columns; ++c) {
      for (std::size_t i = 0; i < args.lanes; ++i) {
        *to++ = i < args.rows ? Format::widen(x[i * args.columns + c]) : 0;
      }
    }
    to = wide;
    for (std::size_t i = 0; wide != nullptr && i < args.rows; ++i) {
      for (std::size_t c = 0; c < attention_padded(args.columns); ++c) {
        *to++ = c < args.columns ? Format::widen(x[i * args.columns + c]) : 0;
      }
    }
    x += args.rows * args.columns;
    packed +=
        tile.layout[AttentionPackOperand::packed].unit_step / sizeof(float);
    if (wide == nullptr) continue;
    wide += tile.layout[AttentionPackOperand::wide].unit_step / sizeof(float);
  }
}

template <class Format>
void mask(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionMaskOperand;
  const auto& args = *static_cast<const AttentionMaskArgs*>(arguments);
  const auto* from = static_cast<const std::byte*>(tile.operands[At::mask]);
  auto* to = static_cast<float*>(tile.operands[At::values]);
  const Operand& layout = tile.layout[At::mask];
  for (std::size_t i = 0; i < tile.count * args.lanes; ++i) {
    const std::size_t lane = i % args.lanes;
    const std::size_t element = args.shared != 0 ? 0 : lane;
    const std::byte* at = from + i / args.lanes * layout.unit_step;
    if (lane >= args.rows) {
      to[i] = 0;
    } else if (args.bytes != 0) {
      at += element * (layout.lines() == 1 ? 1 : layout.line_step);
      to[i] = *at != std::byte{0} ? 0 : kMinusInf;
    } else {
      typename Format::Element value;
      at += element * (layout.lines() == 1 ? sizeof value : layout.line_step);
      std::memcpy(&value, at, sizeof value);
      to[i] = Format::widen(value);
    }
  }
}

// Lane is one lane of a panel: its elements are `stride` floats apart.
struct Lane {
  float* at;
  std::size_t stride;

  float& operator[](std::size_t c) const { return at[c * stride]; }
};

template <class Format>
float dot(const typename Format::Element* row, Lane packed,
          std::size_t columns) {
  float sum = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    sum = std::fma(Format::widen(row[c]), packed[c], sum);
  }
  return sum;
}

template <class Format>
void attention(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* k = static_cast<typename Format::Element*>(tile.operands[At::k]);
  const auto* v = static_cast<typename Format::Element*>(tile.operands[At::v]);
  const auto* mask = static_cast<float*>(tile.operands[At::mask]);
  const std::int64_t visible =
      static_cast<AttentionPosition*>(tile.operands[At::position])->visible;
  const std::size_t step = attention_keys(args.columns, args.value_columns);
  for (std::size_t i = 0; i < args.lanes; ++i) {
    std::vector<float> query(args.columns);
    for (std::size_t c = 0; i < args.rows && c < args.columns; ++c) {
      query[c] = Format::widen(static_cast<typename Format::Element*>(
          tile.operands[At::q])[i * args.columns + c]);
    }
    const Lane q{query.data(), 1};
    const Lane state{static_cast<float*>(tile.partial) + i, args.lanes};
    float& max = state[AttentionState::kMax];
    float& sum = state[AttentionState::kSum];
    const auto lane = static_cast<std::int64_t>(i);
    const auto is_visible = [&](std::size_t j) {
      return static_cast<std::int64_t>(tile.first + j) < visible + lane;
    };
    if (tile.first == 0) max = kMinusInf;
    for (std::size_t at = 0; at < tile.count; at += step) {
      const std::size_t end = std::min(at + step, tile.count);
      std::vector<float> scores;
      float m = max;
      for (std::size_t j = at; j < end; ++j) {
        float e =
            dot<Format>(k + j * args.columns, q, args.columns) * args.scale;
        if (mask != nullptr) e += mask[j * args.lanes + i];
        if (!is_visible(j)) e = kMinusInf;
        scores.push_back(e);
        if (!(e <= m)) m = e;
      }
      const float shift = m == kMinusInf ? 0 : m;
      const float factor = exp_nonpositive(max - shift);
      max = m;
      float step_sum = 0;
      std::vector<float> step_out(args.value_columns);
      for (std::size_t j = at; j < end; ++j) {
        const float p = exp_nonpositive(scores[j - at] - shift);
        step_sum += p;
        if (!is_visible(j)) continue;
        for (std::size_t c = 0; c < args.value_columns; ++c) {
          step_out[c] = std::fma(
              p, Format::widen(v[j * args.value_columns + c]), step_out[c]);
        }
      }
      sum = std::fma(sum, factor, step_sum);
      for (std::size_t c = 0; c < args.value_columns; ++c) {
        float& o = state[AttentionState::kOut + c];
        o = std::fma(o, factor, step_out[c]);
      }
    }
  }
}

template <class Format>
void scores(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionScoresOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* k = static_cast<Element*>(tile.operands[At::k]);
  const auto* from = static_cast<Element*>(tile.operands[At::q]);
  const auto* mask = static_cast<float*>(tile.operands[At::mask]);
  auto* e = static_cast<float*>(tile.operands[At::e]);
  auto* largest = static_cast<float*>(tile.partial);
  std::vector<float> q(from, from + args.columns);
  for (std::size_t c = 0; c < q.size(); ++c) q[c] = Format::widen(from[c]);
  for (std::size_t j = 0; j < tile.count; ++j) {
    if ((tile.first + j) % kAttentionGrain == 0) {
      largest += j != 0;
      *largest = kMinusInf;
    }
    e[j] = dot<Format>(k + j * args.columns, {q.data(), 1}, args.columns) *
           args.scale;
    if (mask != nullptr) e[j] += mask[j];
    *largest = std::max(*largest, e[j]);
  }
}

template <class Format>
void steps(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionStepsOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* v = static_cast<typename Format::Element*>(tile.operands[At::v]);
  const auto* e = static_cast<float*>(tile.operands[At::e]);
  auto* state = static_cast<float*>(tile.operands[At::state]);
  auto& max = *static_cast<float*>(tile.partial);
  if (tile.first == 0) max = *static_cast<float*>(tile.operands[At::before]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::size_t j = 0; j < args.rows; ++j) max = std::max(max, e[j]);
    std::fill(state, state + AttentionState::kOut + args.value_columns, 0.0f);
    state[AttentionState::kMax] = max;
    for (std::size_t j = 0; j < args.rows; ++j, ++e) {
      const float p = exp_nonpositive(*e - (max == kMinusInf ? 0 : max));
      state[AttentionState::kSum] += p;
      float* const o = state + AttentionState::kOut;
      for (std::size_t c = 0; c < args.value_columns; ++c) {
        o[c] = std::fma(p, Format::widen(*v++), o[c]);
      }
    }
    state += AttentionState::kOut + args.value_columns;
  }
}

void merge(const void* arguments, const Tile& tile, Result&) {
  const std::size_t floats =
      AttentionState::kOut +
      static_cast<const AttentionArgs*>(arguments)->value_columns;
  const auto* state = static_cast<float*>(tile.operands[0]);
  auto* all = static_cast<float*>(tile.partial);
  float& max = all[AttentionState::kMax];
  if (tile.first == 0) max = kMinusInf;
  for (std::size_t i = 0; i < tile.count; ++i, state += floats) {
    const float m = state[AttentionState::kMax];
    const float a = exp_nonpositive(max - (m == kMinusInf ? 0 : m));
    max = m;
    for (std::size_t c = AttentionState::kSum; c < floats; ++c) {
      all[c] = std::fma(all[c], a, state[c]);
    }
  }
}

template <class Format>
void output(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionOutputOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  auto* out = static_cast<typename Format::Element*>(tile.operands[At::out]);
  auto* state = static_cast<float*>(tile.operands[At::state]);
  auto* lse = static_cast<float*>(tile.operands[At::lse]);
  for (std::size_t panel = 0; panel < tile.count; ++panel) {
    for (std::size_t i = 0; i < args.rows; ++i) {
      const Lane lane{state + i, args.lanes};
      const float sum = lane[AttentionState::kSum];
      *lse++ = attention_lse(lane[AttentionState::kMax], sum).high;
      for (std::size_t c = 0; c < args.value_columns; ++c) {
        const float o = lane[AttentionState::kOut + c];
        *out++ = Format::narrow(sum == 0 ? 0 : o / sum + 0.0f);
      }
    }
    state +=
        AttentionState::bytes(args.lanes, args.value_columns) / sizeof(float);
  }
}

template <class Format>
void dot_rows(const void* arguments, const Tile& tile, Result& flags) {
  using At = AttentionDotOperand;
  const std::size_t columns =
      static_cast<const AttentionArgs*>(arguments)->value_columns;
  const auto* g = static_cast<typename Format::Element*>(tile.operands[At::g]);
  const auto* out =
      static_cast<typename Format::Element*>(tile.operands[At::out]);
  const auto* lse = static_cast<float*>(tile.operands[At::lse]);
  auto* dots = static_cast<AttentionDot*>(tile.operands[At::dot]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    std::vector<float> products;
    for (std::size_t c = 0; c < columns; ++c) {
      products.push_back(Format::widen(*g++) * Format::widen(*out++));
    }
    dots[i] = {{lse[i], 0}, chain_sum(products.data(), columns)};
    if (has_lost_lse(lse[i], std::is_same<Format, Float32>::value)) {
      flags.flag(tile.first + i, 1);
    }
  }
}

template <class Format>
void sum_lines(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionSumOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const Operand& layout = tile.layout[At::terms];
  auto* x = static_cast<typename Format::Element*>(tile.operands[At::x]);
  auto* sum = static_cast<float*>(tile.operands[At::sum]);
  const auto* terms = static_cast<const float*>(tile.operands[At::terms]);
  const std::size_t padded = attention_padded(args.columns);
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::size_t c = 0; c < padded; ++c) {
      float total = args.continues != 0 ? sum[i * padded + c] : 0;
      for (std::size_t line = 0; line < layout.lines(); ++line) {
        total +=
            terms[(i * layout.unit_step + line * layout.line_step) / 4 + c];
      }
      if (x == nullptr) {
        sum[i * padded + c] = total;
      } else if (c < args.columns) {
        x[i * args.columns + c] = Format::narrow(total * args.scale + 0.0f);
      }
    }
  }
}

template <class Format>
void unpack(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionSumOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const Operand& to = tile.layout[At::x];
  const Operand& layout = tile.layout[At::terms];
  auto* x = static_cast<std::byte*>(tile.operands[At::x]);
  auto* sum = static_cast<float*>(tile.operands[At::sum]);
  const auto* terms = static_cast<const float*>(tile.operands[At::terms]);
  const std::size_t floats = args.columns * args.lanes;
  for (std::size_t unit = 0; unit < tile.count; ++unit) {
    for (std::size_t i = 0; i < floats; ++i) {
      float total = args.continues != 0 ? sum[unit * floats + i] : 0;
      for (std::size_t line = 0; line < layout.lines(); ++line) {
        total +=
            terms[(unit * layout.unit_step + line * layout.line_step) / 4 + i];
      }
      const std::size_t column = i / args.lanes, row = i % args.lanes;
      if (x == nullptr) {
        sum[unit * floats + i] = total;
      } else if (row < args.rows) {
        reinterpret_cast<typename Format::Element*>(
            x + unit * to.unit_step + row * to.line_step)[column] =
            Format::narrow(total * args.scale + 0.0f);
      }
    }
  }
}

template <class Format>
void backward(const void* arguments, const Tile& tile, Result&) {
  using At = AttentionBackwardOperand;
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* q = static_cast<typename Format::Element*>(tile.operands[At::q]);
  const auto* g = static_cast<typename Format::Element*>(tile.operands[At::g]);
  const auto* dots = static_cast<AttentionDot*>(tile.operands[At::dot]);
  const auto* mask = static_cast<float*>(tile.operands[At::mask]);
  auto* dq = static_cast<float*>(tile.operands[At::dq]);
  auto* panel = static_cast<float*>(tile.operands[At::keys]);
  auto* partial = static_cast<float*>(tile.partial);
  const std::size_t padded = attention_padded(args.columns);
  const float* keys = panel + (args.columns + args.value_columns) * args.lanes;
  const std::size_t columns = args.columns;
  const std::size_t value_columns = args.value_columns;
  for (std::size_t at = 0; at < tile.count; at += kAttentionQueries) {
    const std::size_t end = std::min(at + kAttentionQueries, tile.count);
    if (at != 0 && tile.grain_units != 0 &&
        (tile.first + at) % tile.grain_units == 0) {
      partial += (columns + value_columns) * args.lanes;
    }
    if (args.continues == 0) std::fill(dq + at * padded, dq + end * padded, 0);
    for (std::size_t i = 0; i < args.lanes; ++i) {
      const Lane k{panel + i, args.lanes};
      const Lane v{panel + columns * args.lanes + i, args.lanes};
      const Lane dk{partial + i, args.lanes};
      const Lane dv{partial + columns * args.lanes + i, args.lanes};
      std::vector<float> dk_sums(columns), dv_sums(value_columns);
      for (std::size_t j = at; j < end; ++j) {
        const auto row = static_cast<std::int64_t>(tile.first + j);
        if (static_cast<std::int64_t>(i) >= args.visible + row) continue;
        const auto* q_row = q + j * columns;
        const auto* g_row = g + j * value_columns;
        float e = dot<Format>(q_row, k, columns) * args.scale;
        if (mask != nullptr) e += mask[j * args.lanes + i];
        const float t = (e - dots[j].lse.high) - dots[j].lse.low;
        const float p = exp_nonpositive(t > 0 ? 0 : t);
        const float s =
            p * (dot<Format>(g_row, v, value_columns) - dots[j].dot);
        for (std::size_t c = 0; c < value_columns; ++c) {
          dv_sums[c] = std::fma(p, Format::widen(g_row[c]), dv_sums[c]);
        }
        for (std::size_t c = 0; c < columns; ++c) {
          dk_sums[c] = std::fma(s, Format::widen(q_row[c]), dk_sums[c]);
          if (i >= args.rows) continue;
          float& sum = dq[j * padded + c];
          sum = std::fma(s, keys[i * padded + c], sum);
        }
      }
      for (std::size_t c = 0; c < columns; ++c) dk[c] += dk_sums[c];
      for (std::size_t c = 0; c < value_columns; ++c) dv[c] += dv_sums[c];
    }
  }
}

}  // namespace

SWAMP_KERNELS(attention_pack, kUpTo32, pack<A>)
SWAMP_KERNELS(attention_mask, kUpTo32, mask<A>)
SWAMP_KERNELS(attention, kUpTo32, attention<A>)
SWAMP_KERNELS(attention_scores, kUpTo32, scores<A>)
SWAMP_KERNELS(attention_steps, kUpTo32, steps<A>)
SWAMP_KERNELS(attention_merge, kNoFormat, merge)
SWAMP_KERNELS(attention_output, kUpTo32, output<A>)
SWAMP_KERNELS(attention_dot, kUpTo32, dot_rows<A>)
SWAMP_KERNELS(attention_backward, kUpTo32, backward<A>)
SWAMP_KERNELS(attention_sum, kUpTo32, sum_lines<A>)
SWAMP_KERNELS(attention_unpack, kUpTo32, unpack<A>)

}  // namespace swamp::slave::reference
