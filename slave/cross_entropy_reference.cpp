#include <algorithm>
#include <vector>

#include "slave/reference.h"
#include "slave/row_args.h"

namespace swamp::slave::reference {
namespace {

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
  const auto* x = static_cast<typename Format::Element*>(tile.operands[0]) +
                  row * args.columns;
  const auto* weight = static_cast<float*>(tile.operands[2]);
  std::vector<CrossEntropyChunk> chunks;
  for (std::size_t at = 0; at < args.columns; at += kChunkColumns) {
    chunks.push_back(chunk_of<Format>(
        args, x + at, weight == nullptr ? weight : weight + at,
        std::min<std::size_t>(kChunkColumns, args.columns - at)));
  }
  CrossEntropyParts parts = combine_chunks(chunks.data(), chunks.size());
  const std::int64_t column =
      target_of(args, tile.operands[1], row) - args.first_class;
  if (column >= 0 && column < static_cast<std::int64_t>(args.columns)) {
    parts.target_x = Format::widen(x[column]);
  }
  return parts;
}

template <class Format>
void cross_entropy_rows(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  const auto* weight = static_cast<float*>(tile.operands[2]);
  for (std::size_t row = 0; row < tile.count; ++row) {
    const CrossEntropyParts parts = parts_of<Format>(args, tile, row);
    const std::int64_t target = target_of(args, tile.operands[1], row);
    const std::int64_t column = target - args.first_class;
    const double log_sum = log_positive(parts.sum);
    const LogSumExp lse = log_sum_exp(parts.max, log_sum);
    const bool here =
        column >= 0 && column < static_cast<std::int64_t>(args.columns);
    static_cast<float*>(tile.operands[4])[row] = lse.high;
    auto* low = static_cast<float*>(tile.operands[5]);
    if (low != nullptr) low[row] = lse.low;
    static_cast<float*>(tile.operands[3])[row] =
        target == args.ignore_index
            ? 0
            : cross_entropy_loss(
                  args, parts, log_sum,
                  weight != nullptr && here ? weight[column] : 1);
  }
}

template <class Format>
void cross_entropy_sum(const void* args, const Tile& tile) {
  const auto* x = static_cast<typename Format::Element*>(tile.operands[0]);
  const auto* weight = static_cast<float*>(tile.operands[2]);
  if (weight != nullptr) {
    auto& sums = *static_cast<CrossEntropySums*>(tile.partial);
    const float shift =
        chunk_shift(static_cast<SoftmaxChunk*>(tile.operands[1])->max);
    for (std::size_t j = 0; j < tile.count; ++j) {
      sums.x.chains[j % kChains] += (Format::widen(x[j]) - shift) * weight[j];
      sums.weight.chains[j % kChains] += weight[j];
    }
    return;
  }
  for (std::size_t at = 0; at < tile.count; at += kChunkColumns) {
    static_cast<CrossEntropyChunk*>(tile.partial)[at / kChunkColumns] =
        chunk_of<Format>(*static_cast<const CrossEntropyArgs*>(args), x + at,
                         nullptr, std::min(kChunkColumns, tile.count - at));
  }
}

template <class Format>
void backward_row(const CrossEntropyArgs& args, const Tile& tile, std::size_t i,
                  std::size_t first, std::size_t count) {
  using Element = typename Format::Element;
  const Element* x = static_cast<Element*>(tile.operands[0]) + i * count;
  Element* dx = static_cast<Element*>(tile.operands[4]) + i * count;
  const std::int64_t target = target_of(args, tile.operands[1], i);
  const auto& row = static_cast<CrossEntropyRow*>(tile.operands[2])[i];
  const auto* weight = static_cast<float*>(tile.operands[3]);
  const CrossEntropyFactors factors = cross_entropy_factors(args, row);
  for (std::size_t j = 0; j < count; ++j) {
    const float log_p = (Format::widen(x[j]) - row.lse.high) - row.lse.low;
    const float p = exp_nonpositive(log_p > 0 ? 0 : log_p) * factors.a;
    const float c = weight == nullptr ? factors.c : factors.c * weight[j];
    const bool is_target =
        static_cast<std::int64_t>(first + j) == target - args.first_class;
    const float value = (is_target ? p - factors.b : p) - c;
    dx[j] = target == args.ignore_index ? Element{}
                                        : Format::narrow(row.gradient * value);
  }
}

template <class Format>
void backward_rows(const void* arguments, const Tile& tile) {
  const auto& args = *static_cast<const CrossEntropyArgs*>(arguments);
  for (std::size_t i = 0; i < tile.count; ++i) {
    backward_row<Format>(args, tile, i, 0, args.columns);
  }
}

template <class Format>
void backward_map(const void* args, const Tile& tile) {
  backward_row<Format>(*static_cast<const CrossEntropyArgs*>(args), tile, 0,
                       tile.first, tile.count);
}

template <class Format>
void cross_entropy(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) cross_entropy_rows<Format>(args, tile);
  if (tile.pass == Pass::sum) cross_entropy_sum<Format>(args, tile);
}

template <class Format>
void backward(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) backward_rows<Format>(args, tile);
  if (tile.pass == Pass::map) backward_map<Format>(args, tile);
}

}  // namespace

SWAMP_KERNELS(cross_entropy, kUpTo32, cross_entropy<A>)
SWAMP_KERNELS(cross_entropy_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::reference
