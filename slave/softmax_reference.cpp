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

const std::uint8_t* mask_of(const Tile& tile) {
  return static_cast<const std::uint8_t*>(tile.operands[SoftmaxOperand::mask]);
}

template <class Format>
void softmax(const void* arguments, const Tile& tile, Result&) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const SoftmaxArgs*>(arguments);
  for (std::size_t row = 0; row < tile.count; ++row) {
    const std::size_t start = row * args.columns;
    const Element* x =
        static_cast<Element*>(tile.operands[SoftmaxOperand::x]) + start;
    const std::uint8_t* mask = mask_of(tile);
    if (mask != nullptr) mask += start;
    Element* y =
        static_cast<Element*>(tile.operands[SoftmaxOperand::y]) + start;
    const std::size_t count = valid_columns(args, tile.first + row);
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
void write_dx(const SoftmaxBackwardArgs& args, float dot,
              const typename Format::Element* g,
              const typename Format::Element* y, typename Format::Element* dx,
              std::size_t valid, std::size_t count) {
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
void backward(const void* arguments, const Tile& tile, Result&) {
  using At = SoftmaxBackwardOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const SoftmaxBackwardArgs*>(arguments);
  for (std::size_t row = 0; row < tile.count; ++row) {
    const std::size_t start = row * args.columns;
    const Element* g = static_cast<Element*>(tile.operands[At::g]) + start;
    const Element* y = static_cast<Element*>(tile.operands[At::y]) + start;
    const std::size_t count = valid_columns(args, tile.first + row);
    std::vector<float> sums;
    for (std::size_t at = 0; at < count; at += kChunkColumns) {
      sums.push_back(term_sum<Format>(args, g + at, y + at,
                                      std::min(kChunkColumns, count - at)));
    }
    double dot = 0;
    for (const float sum : sums) dot += static_cast<double>(sum);
    const auto narrow_dot = static_cast<float>(dot);
    auto* dots = static_cast<float*>(tile.operands[At::dot]);
    if (dots != nullptr) dots[row] = narrow_dot;
    auto* dx = static_cast<Element*>(tile.operands[At::dx]);
    if (dx == nullptr) continue;
    write_dx<Format>(args, narrow_dot, g, y, dx + start, count, args.columns);
  }
}

}  // namespace

SWAMP_KERNELS(scaled_softmax, kUpTo32, softmax<A>)
SWAMP_KERNELS(softmax_backward, kUpTo32, backward<A>)

}  // namespace swamp::slave::reference
