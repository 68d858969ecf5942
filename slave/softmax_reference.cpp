// The scalar references of softmax and its gradient: the formulas of
// slave/row_args.h in plain loops, with the order of sums of slave/row_math.h.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "slave/reference.h"
#include "slave/row_args.h"

namespace swamp::slave::reference {
namespace {

// logit() is e_j, of column j of a row.
template <class Format>
float logit(const SoftmaxArgs& args, const typename Format::Element* x,
            const std::uint8_t* mask, std::size_t j) {
  if (mask != nullptr && mask[j] != 0) return kMasked;
  const float scale = args.round_scale != 0
                          ? Format::widen(Format::narrow(args.scale))
                          : args.scale;
  return Format::widen(x[j]) * scale;
}

template <class Format>
SoftmaxChunk chunk_of(const SoftmaxArgs& args,
                      const typename Format::Element* x,
                      const std::uint8_t* mask, std::size_t begin,
                      std::size_t end) {
  std::vector<float> logits;
  for (std::size_t j = begin; j < end; ++j) {
    logits.push_back(logit<Format>(args, x, mask, j));
  }
  return softmax_chunk(logits.data(), logits.size());
}

template <class Format>
void map(const SoftmaxArgs& args, const typename Format::Element* x,
         const std::uint8_t* mask, std::size_t begin, std::size_t end,
         const SoftmaxFactor& factor, typename Format::Element* y) {
  for (std::size_t j = begin; j < end; ++j) {
    const float e = logit<Format>(args, x, mask, j);
    y[j] = Format::narrow(args.log != 0 ? (e - factor.shift) - factor.factor
                                        : exp_nonpositive(e - factor.shift) *
                                              factor.factor);
  }
}

template <class Args>
std::size_t columns_of_row(const Args& args, std::size_t row) {
  return args.causal_rows == 0
             ? args.columns
             : std::min(args.columns, row % args.causal_rows + 1);
}

const std::uint8_t* mask_of(const Tile& tile) {
  return static_cast<const std::uint8_t*>(tile.operands[1]);
}

template <class Format>
void softmax_rows(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const SoftmaxArgs*>(arguments);
  for (std::size_t row = 0; row < tile.count; ++row) {
    const std::size_t start = row * args.columns;
    const Element* x = static_cast<Element*>(tile.operands[0]) + start;
    const std::uint8_t* mask = mask_of(tile);
    if (mask != nullptr) mask += start;
    Element* y = static_cast<Element*>(tile.operands[2]) + start;
    const std::size_t count = columns_of_row(args, tile.first + row);
    std::vector<SoftmaxChunk> chunks;
    for (std::size_t at = 0; at < count; at += kChunkColumns) {
      chunks.push_back(chunk_of<Format>(args, x, mask, at,
                                        std::min(count, at + kChunkColumns)));
    }
    const SoftmaxTotal total = combine_chunks(chunks.data(), chunks.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      map<Format>(args, x, mask, c * kChunkColumns,
                  std::min(count, (c + 1) * kChunkColumns),
                  softmax_factor(args, chunks[c].max, total), y);
    }
    for (std::size_t j = count; j < args.columns; ++j) y[j] = 0;
  }
}

std::size_t valid_columns(const Tile& tile) {
  const auto* valid = static_cast<const std::uint64_t*>(tile.operands[4]);
  if (valid == nullptr) return tile.count;
  return std::min(tile.count,
                  std::max<std::size_t>(*valid, tile.first) - tile.first);
}

template <class Format>
void softmax_sum(const void* args, const Tile& tile) {
  const std::size_t valid = valid_columns(tile);
  for (std::size_t at = 0; at < tile.count; at += kChunkColumns) {
    static_cast<SoftmaxChunk*>(tile.partial)[at / kChunkColumns] =
        chunk_of<Format>(
            *static_cast<const SoftmaxArgs*>(args),
            static_cast<typename Format::Element*>(tile.operands[0]),
            mask_of(tile), std::min(valid, at),
            std::min(valid, at + kChunkColumns));
  }
}

template <class Format>
void softmax_map(const void* args, const Tile& tile) {
  using Element = typename Format::Element;
  const std::size_t valid = valid_columns(tile);
  auto* y = static_cast<Element*>(tile.operands[2]);
  for (std::size_t at = 0; at < valid; at += kChunkColumns) {
    map<Format>(
        *static_cast<const SoftmaxArgs*>(args),
        static_cast<Element*>(tile.operands[0]), mask_of(tile), at,
        std::min(valid, at + kChunkColumns),
        static_cast<SoftmaxFactor*>(tile.operands[3])[at / kChunkColumns], y);
  }
  for (std::size_t j = valid; j < tile.count; ++j) y[j] = 0;
}

// term() is t_j.
template <class Format>
float term(const SoftmaxBackwardArgs& args, typename Format::Element g,
           typename Format::Element y) {
  const float wide = Format::widen(g);
  return args.log != 0 ? wide : wide * Format::widen(y);
}

template <class Format>
float term_sum(const SoftmaxBackwardArgs& args,
               const typename Format::Element* g,
               const typename Format::Element* y, std::size_t count) {
  std::vector<float> terms;
  for (std::size_t j = 0; j < count; ++j) {
    terms.push_back(term<Format>(args, g[j], y[j]));
  }
  return chain_sum(terms.data(), count);
}

template <class Format>
void backward_map_row(const SoftmaxBackwardArgs& args, float dot,
                      const typename Format::Element* g,
                      const typename Format::Element* y,
                      typename Format::Element* dx, std::size_t valid,
                      std::size_t count) {
  for (std::size_t j = 0; j < valid; ++j) {
    const float wide = Format::widen(y[j]);
    const float p = args.log != 0 ? exp_nonpositive(wide > 0 ? 0 : wide) : wide;
    const float product = p * dot;
    dx[j] =
        Format::narrow(args.scale * (term<Format>(args, g[j], y[j]) - product));
  }
  for (std::size_t j = valid; j < count; ++j) dx[j] = 0;
}

template <class Format>
void backward_rows(const void* arguments, const Tile& tile) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const SoftmaxBackwardArgs*>(arguments);
  for (std::size_t row = 0; row < tile.count; ++row) {
    const std::size_t start = row * args.columns;
    const Element* g = static_cast<Element*>(tile.operands[0]) + start;
    const Element* y = static_cast<Element*>(tile.operands[1]) + start;
    const std::size_t count = columns_of_row(args, tile.first + row);
    std::vector<float> sums;
    for (std::size_t at = 0; at < count; at += kChunkColumns) {
      sums.push_back(term_sum<Format>(args, g + at, y + at,
                                      std::min(kChunkColumns, count - at)));
    }
    double dot = 0;
    for (const float sum : sums) dot += static_cast<double>(sum);
    backward_map_row<Format>(args, static_cast<float>(dot), g, y,
                             static_cast<Element*>(tile.operands[2]) + start,
                             count, args.columns);
  }
}

template <class Format>
void backward_sum(const void* args, const Tile& tile) {
  using Element = typename Format::Element;
  const std::size_t valid = valid_columns(tile);
  const std::size_t first_chunk = tile.first / kChunkColumns;
  for (std::size_t at = 0; at < valid; ++at) {
    const std::size_t column = tile.first + at;
    auto& sums = static_cast<ChainSums*>(
        tile.partial)[column / kChunkColumns - first_chunk];
    sums.chains[column % kChains] +=
        term<Format>(*static_cast<const SoftmaxBackwardArgs*>(args),
                     static_cast<Element*>(tile.operands[0])[at],
                     static_cast<Element*>(tile.operands[1])[at]);
  }
}

template <class Format>
void backward_map(const void* args, const Tile& tile) {
  using Element = typename Format::Element;
  backward_map_row<Format>(*static_cast<const SoftmaxBackwardArgs*>(args),
                           *static_cast<float*>(tile.operands[3]),
                           static_cast<Element*>(tile.operands[0]),
                           static_cast<Element*>(tile.operands[1]),
                           static_cast<Element*>(tile.operands[2]),
                           valid_columns(tile), tile.count);
}

template <class Format>
void softmax(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) softmax_rows<Format>(args, tile);
  if (tile.pass == Pass::sum) softmax_sum<Format>(args, tile);
  if (tile.pass == Pass::map) softmax_map<Format>(args, tile);
}

template <class Format>
void backward(const void* args, const Tile& tile, Result&) {
  if (tile.pass == Pass::rows) backward_rows<Format>(args, tile);
  if (tile.pass == Pass::sum) backward_sum<Format>(args, tile);
  if (tile.pass == Pass::map) backward_map<Format>(args, tile);
}

}  // namespace

SWAMP_KERNELS(scaled_softmax, kUpTo32, softmax<A>)
SWAMP_KERNELS(softmax_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::reference
