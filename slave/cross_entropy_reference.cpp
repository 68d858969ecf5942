#include <algorithm>
#include <vector>

#include "slave/reference.h"
#include "slave/row_args.h"

namespace swamp::slave::reference {
namespace {

const std::int64_t* targets_of(const Tile& tile) {
  return static_cast<std::int64_t*>(tile.operands[CrossEntropyOperand::target]);
}

bool is_ignored(const CrossEntropyArgs& args, const Tile& tile, std::size_t i) {
  const std::int64_t* const targets = targets_of(tile);
  return targets != nullptr && targets[i] == args.ignore_index;
}

// column_of() returns the column of the target of row i, or -1.
std::int64_t column_of(const CrossEntropyArgs& args, const Tile& tile,
                       std::size_t i) {
  const std::int64_t* const targets = targets_of(tile);
  if (targets == nullptr) return -1;
  const std::int64_t column = targets[i] - args.first_class;
  return column < static_cast<std::int64_t>(args.columns) ? column : -1;
}

template <class Format>
CrossEntropyChunk chunk_of(const CrossEntropyArgs& args,
                           const typename Format::Element* x,
                           const float* weight, std::size_t count) {
  std::vector<float> logits, terms;
  for (std::size_t j = 0; j < count; ++j) logits.push_back(Format::widen(x[j]));
  const SoftmaxChunk exp = softmax_chunk(logits.data(), count);
  if (args.uniform == 0) return {exp, 0, 0};
  const float shift = chunk_shift(exp.max);
  for (std::size_t j = 0; j < count; ++j) {
    const float term = logits[j] - shift;
    terms.push_back(weight == nullptr ? term : term * weight[j]);
  }
  return {
      exp, chain_sum(terms.data(), count),
      weight == nullptr ? static_cast<float>(count) : chain_sum(weight, count)};
}

template <class Format>
CrossEntropyParts parts_of(const CrossEntropyArgs& args, const Tile& tile,
                           std::size_t row) {
  const auto* x = static_cast<typename Format::Element*>(
                      tile.operands[CrossEntropyOperand::x]) +
                  row * args.columns;
  const auto* weight =
      static_cast<float*>(tile.operands[CrossEntropyOperand::weight]);
  std::vector<CrossEntropyChunk> chunks;
  for (std::size_t at = 0; at < args.columns; at += kChunkColumns) {
    chunks.push_back(chunk_of<Format>(
        args, x + at, weight == nullptr ? weight : weight + at,
        std::min<std::size_t>(kChunkColumns, args.columns - at)));
  }
  CrossEntropyParts parts = combine_chunks(chunks.data(), chunks.size());
  const std::int64_t column = column_of(args, tile, row);
  if (column >= 0) {
    parts.target_x = Format::widen(x[column]);
  }
  return parts;
}

template <class Format>
void cross_entropy(const void* arguments, const Tile& tile, Result&) {
  using At = CrossEntropyOperand;
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const auto* weight = static_cast<float*>(tile.operands[At::weight]);
  for (std::size_t row = 0; row < tile.count; ++row) {
    const CrossEntropyParts parts = parts_of<Format>(args, tile, row);
    if (args.gives_parts != 0) {
      static_cast<CrossEntropyParts*>(tile.operands[At::loss])[row] = parts;
      continue;
    }
    const double log_sum = log_positive(parts.sum);
    const LogSumExp lse = log_sum_exp(parts.max, log_sum);
    static_cast<float*>(tile.operands[At::high])[row] = lse.high;
    auto* low = static_cast<float*>(tile.operands[At::low]);
    if (low != nullptr) low[row] = lse.low;
    auto* loss = static_cast<float*>(tile.operands[At::loss]);
    if (loss == nullptr) continue;
    const std::int64_t column = column_of(args, tile, row);
    loss[row] =
        is_ignored(args, tile, row)
            ? 0
            : cross_entropy_loss(
                  args, parts, log_sum,
                  weight != nullptr && column >= 0 ? weight[column] : 1);
  }
}

template <class Format>
void backward(const void* arguments, const Tile& tile, Result&) {
  using At = CrossEntropyBackwardOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const auto* weight = static_cast<float*>(tile.operands[At::weight]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const Element* x =
        static_cast<Element*>(tile.operands[At::x]) + i * args.columns;
    Element* dx =
        static_cast<Element*>(tile.operands[At::dx]) + i * args.columns;
    const std::int64_t column = column_of(args, tile, i);
    const auto& row = static_cast<CrossEntropyRow*>(tile.operands[At::row])[i];
    const CrossEntropyFactors factors = cross_entropy_factors(args, row);
    for (std::size_t j = 0; j < args.columns; ++j) {
      const float log_p = (Format::widen(x[j]) - row.lse.high) - row.lse.low;
      const float p = exp_nonpositive(log_p > 0 ? 0 : log_p) * factors.a;
      const float c = weight == nullptr ? factors.c : factors.c * weight[j];
      const bool is_target = static_cast<std::int64_t>(j) == column;
      const float value = (is_target ? p - factors.b : p) - c;
      dx[j] = is_ignored(args, tile, i) ? Element{}
                                        : Format::narrow(row.gradient * value);
    }
  }
}

}  // namespace

SWAMP_KERNELS(cross_entropy, kUpTo32, cross_entropy<A>)
SWAMP_KERNELS(cross_entropy_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::reference
