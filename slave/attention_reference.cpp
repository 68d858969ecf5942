// The scalar references of attention, its gradients and their packing: the
// formulas of slave/attention_args.h in plain loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "slave/attention_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

template <class Format>
void pack(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  auto* packed = static_cast<float*>(tile.operands[1]);
  for (std::size_t panel = 0; panel < tile.count; ++panel) {
    for (std::size_t c = 0; c < args.columns; ++c) {
      for (std::size_t i = 0; i < args.lanes; ++i) {
        *packed++ = i < args.rows ? Format::widen(x[i * args.columns + c]) : 0;
      }
    }
    x += args.rows * args.columns;
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
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* k = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* v = static_cast<typename Format::Element*>(tile.operands[1]);
  const auto* mask = static_cast<float*>(tile.operands[3]);
  const std::int64_t visible =
      static_cast<AttentionPosition*>(tile.operands[4])->visible;
  const std::size_t step = attention_keys(args.columns, args.value_columns);
  for (std::size_t i = 0; i < args.lanes; ++i) {
    const Lane q{static_cast<float*>(tile.operands[2]) + i, args.lanes};
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
void output(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  auto* out = static_cast<typename Format::Element*>(tile.operands[0]);
  auto* state = static_cast<float*>(tile.operands[1]);
  auto* lse = static_cast<float*>(tile.operands[2]);
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
void dot_rows(const void* arguments, const Tile& tile, Result&) {
  const std::size_t columns =
      static_cast<const AttentionArgs*>(arguments)->value_columns;
  const auto* g = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* out = static_cast<typename Format::Element*>(tile.operands[1]);
  const auto* lse = static_cast<float*>(tile.operands[2]);
  auto* dots = static_cast<AttentionDot*>(tile.operands[3]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    std::vector<float> products;
    for (std::size_t c = 0; c < columns; ++c) {
      products.push_back(Format::widen(*g++) * Format::widen(*out++));
    }
    dots[i] = {{lse[i], 0}, chain_sum(products.data(), columns)};
  }
}

template <class Format>
void widen_rows(const void* arguments, const Tile& tile, Result&) {
  const std::size_t columns =
      static_cast<const AttentionArgs*>(arguments)->columns;
  const auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  auto* wide = static_cast<float*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::size_t c = 0; c < attention_padded(columns); ++c) {
      *wide++ = c < columns ? Format::widen(*x++) : 0;
    }
  }
}

template <class Format>
void round_rows(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* wide = static_cast<float*>(tile.operands[1]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::size_t c = 0; c < args.columns; ++c) {
      *x++ = Format::narrow(wide[c] * args.scale + 0.0f);
    }
    wide += attention_padded(args.columns);
  }
}

template <class Format>
void unpack(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* packed = static_cast<float*>(tile.operands[1]);
  for (std::size_t panel = 0; panel < tile.count; ++panel) {
    for (std::size_t i = 0; i < args.rows; ++i) {
      for (std::size_t c = 0; c < args.columns; ++c) {
        *x++ = Format::narrow(packed[c * args.lanes + i] * args.scale + 0.0f);
      }
    }
    packed += args.columns * args.lanes;
  }
}

template <class Format>
void backward(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionBackwardArgs*>(arguments);
  const auto* q = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* g = static_cast<typename Format::Element*>(tile.operands[1]);
  const auto* dots = static_cast<AttentionDot*>(tile.operands[2]);
  const auto* mask = static_cast<float*>(tile.operands[3]);
  auto* dq = static_cast<float*>(tile.operands[4]);
  auto* panel = static_cast<float*>(tile.operands[5]);
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
    // By query and group of keys.
    const std::size_t groups = args.lanes / kAttentionLanes;
    std::vector<float> dq_sums((end - at) * groups * columns);
    for (std::size_t i = 0; i < args.lanes; ++i) {
      const Lane k{panel + i, args.lanes};
      const Lane v{panel + columns * args.lanes + i, args.lanes};
      const Lane dk{partial + i, args.lanes};
      const Lane dv{partial + columns * args.lanes + i, args.lanes};
      std::vector<float> dk_sums(columns), dv_sums(value_columns);
      for (std::size_t j = at; j < end; ++j) {
        const auto row =
            static_cast<std::int64_t>((tile.first + j) % args.period);
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
          float& sum =
              dq_sums[((j - at) * groups + i / kAttentionLanes) * columns + c];
          sum = std::fma(s, keys[i * padded + c], sum);
        }
      }
      for (std::size_t c = 0; c < columns; ++c) dk[c] += dk_sums[c];
      for (std::size_t c = 0; c < value_columns; ++c) dv[c] += dv_sums[c];
    }
    for (std::size_t i = 0; i < dq_sums.size(); ++i) {
      dq[(at + i / columns / groups) * padded + i % columns] += dq_sums[i];
    }
  }
}

}  // namespace

SWAMP_KERNELS(attention_pack, kUpTo32, pack<A>)
SWAMP_KERNELS(attention, kUpTo32, attention<A>)
SWAMP_KERNELS(attention_output, kUpTo32, output<A>)
SWAMP_KERNELS(attention_dot, kUpTo32, dot_rows<A>)
SWAMP_KERNELS(attention_widen, kUpTo32, widen_rows<A>)
SWAMP_KERNELS(attention_backward, kUpTo32, backward<A>)
SWAMP_KERNELS(attention_unpack, kUpTo32, unpack<A>)
SWAMP_KERNELS(attention_round, kUpTo32, round_rows<A>)

}  // namespace swamp::slave::reference
