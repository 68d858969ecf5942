#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "slave/attention_args.h"
#include "slave/reference.h"
#include "slave/row_kernels.h"

namespace swamp::slave::reference {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

template <class Format>
void pack(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AttentionArgs*>(arguments);
  const auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  auto* packed = static_cast<float*>(tile.operands[1]);
  for (std::size_t block = 0; block < tile.count; ++block) {
    for (std::size_t c = 0; c < args.columns; ++c) {
      for (std::size_t i = 0; i < args.lanes; ++i) {
        *packed++ = i < args.rows ? Format::widen(x[i * args.columns + c]) : 0;
      }
    }
    x += args.rows * args.columns;
  }
}

// Lane is one lane of a block: its elements are `stride` floats apart.
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
      sum *= factor;
      for (std::size_t c = 0; c < args.value_columns; ++c) {
        state[AttentionState::kOut + c] *= factor;
      }
      for (std::size_t j = at; j < end; ++j) {
        const float p = exp_nonpositive(scores[j - at] - shift);
        sum += p;
        if (!is_visible(j)) continue;
        for (std::size_t c = 0; c < args.value_columns; ++c) {
          float& o = state[AttentionState::kOut + c];
          o = std::fma(p, Format::widen(v[j * args.value_columns + c]), o);
        }
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
  for (std::size_t block = 0; block < tile.count; ++block) {
    for (std::size_t i = 0; i < args.rows; ++i) {
      const Lane lane{state + i, args.lanes};
      const float sum = lane[AttentionState::kSum];
      *lse++ = attention_lse(lane[AttentionState::kMax], sum);
      for (std::size_t c = 0; c < args.value_columns; ++c) {
        const float o = lane[AttentionState::kOut + c];
        *out++ = Format::narrow(sum == 0 ? 0 : o / sum + 0.0f);
      }
    }
    state +=
        AttentionState::bytes(args.lanes, args.value_columns) / sizeof(float);
  }
}

}  // namespace

SWAMP_FOR_ROW_TYPES(SWAMP_ATTENTION_KERNELS)

}  // namespace swamp::slave::reference
