// The scalar references of LayerNorm, RMSNorm, their gradients and
// residual_add: the formulas of slave/row_args.h in plain loops, with the order
// of sums of slave/row_math.h.
#include <algorithm>
#include <vector>

#include "slave/reference.h"
#include "slave/row_args.h"

namespace swamp::slave::reference {
namespace {

// row() is row i of an operand, of `columns` elements.
template <class Element>
Element* row(const Tile& tile, int s, std::size_t i, std::size_t columns) {
  return static_cast<Element*>(tile.operands[s]) + i * columns;
}

std::size_t part_of(std::size_t columns, std::size_t at) {
  return std::min(kChunkColumns, columns - at);
}

template <class Format, bool kMean>
NormChunk<kMean> norm_chunk(const typename Format::Element* x,
                            std::size_t count) {
  std::vector<double> wide;
  for (std::size_t j = 0; j < count; ++j) {
    wide.push_back(static_cast<double>(Format::widen(x[j])));
  }
  const double sum = kMean ? chain_sum(wide.data(), count, kWideChains) : 0;
  const auto mean = static_cast<float>(sum / static_cast<double>(count));
  std::vector<float> squares;
  for (std::size_t j = 0; j < count; ++j) {
    float d = Format::widen(x[j]);
    if (kMean) d = d - mean;
    squares.push_back(d * d);
  }
  if constexpr (kMean) return {sum, mean, chain_sum(squares.data(), count)};
  if constexpr (!kMean) return {chain_sum(squares.data(), count)};
}

// norm_chunks() are the chunks of a row.
template <class Format, bool kMean>
void norm_chunks(const typename Format::Element* x, std::size_t columns,
                 NormChunk<kMean>* chunks) {
  for (std::size_t at = 0; at < columns; at += kChunkColumns) {
    *chunks++ = norm_chunk<Format, kMean>(x + at, part_of(columns, at));
  }
}

template <class Format, class Weight, bool kMean>
void normalise(const RowNormArgs& args, const Tile& tile,
               const typename Format::Element* x, std::size_t count, float mean,
               float rstd, typename Format::Element* y) {
  using Element = typename Weight::Element;
  using At = NormOperand<kMean>;
  const auto* weight = static_cast<Element*>(tile.operands[At::weight]);
  const auto* bias =
      kMean ? static_cast<Element*>(tile.operands[At::bias]) : nullptr;
  for (std::size_t j = 0; j < count; ++j) {
    float value = Format::widen(x[j]);
    if (kMean) value = value - mean;
    value = value * rstd;
    if (weight != nullptr) {
      const float factor = Weight::widen(weight[j]) + args.weight_offset;
      value = value * factor;
    }
    if (bias != nullptr) value = value + Weight::widen(bias[j]);
    y[j] = Format::narrow(value);
  }
}

template <class Format, class Weight, bool kMean>
void norm(const void* arguments, const Tile& tile, Result&) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  using At = NormOperand<kMean>;
  const std::size_t columns = args.columns;
  std::vector<NormChunk<kMean>> chunks(chunks_of(columns));
  for (std::size_t i = 0; i < tile.count; ++i) {
    const Element* x = row<Element>(tile, At::x, i, columns);
    norm_chunks<Format, kMean>(x, columns, chunks.data());
    const NormStatistics one =
        norm_statistics(chunks.data(), columns, args.eps);
    if (kMean) *row<float>(tile, At::mean, i, 1) = one.mean;
    *row<float>(tile, At::rstd, i, 1) = one.rstd;
    normalise<Format, Weight, kMean>(args, tile, x, columns, one.mean, one.rstd,
                                     row<Element>(tile, At::y, i, columns));
  }
}

// Terms is what backward computes of one element.
struct Terms {
  float g, xhat, h;
};

template <class Format, class Weight>
std::vector<Terms> terms_of(const RowNormArgs& args,
                            const typename Format::Element* g,
                            const typename Format::Element* x,
                            const typename Weight::Element* weight,
                            bool with_mean, float mean, float rstd,
                            std::size_t count) {
  std::vector<Terms> terms(count);
  for (std::size_t j = 0; j < count; ++j) {
    Terms& term = terms[j];
    term.g = Format::widen(g[j]);
    term.xhat = Format::widen(x[j]);
    if (with_mean) term.xhat = term.xhat - mean;
    term.xhat = term.xhat * rstd;
    term.h = term.g;
    if (weight != nullptr) {
      const float factor = Weight::widen(weight[j]) + args.weight_offset;
      term.h = term.g * factor;
    }
  }
  return terms;
}

// Sums are those of the chunks of a row.
struct Sums {
  double h = 0, hx = 0;

  void add(const Terms* terms, std::size_t count, bool with_mean) {
    std::vector<float> all_h, all_hx;
    for (std::size_t j = 0; j < count; ++j) {
      all_h.push_back(terms[j].h);
      all_hx.push_back(terms[j].h * terms[j].xhat);
    }
    if (with_mean) h += static_cast<double>(chain_sum(all_h.data(), count));
    hx += static_cast<double>(chain_sum(all_hx.data(), count));
  }
};

template <class Format>
void write_dx(const std::vector<Terms>& terms,
              const NormBackwardFactors& factors, float rstd, bool with_mean,
              typename Format::Element* dx) {
  for (std::size_t j = 0; j < terms.size(); ++j) {
    const float h = with_mean ? terms[j].h - factors.a : terms[j].h;
    const float product = terms[j].xhat * factors.b;
    dx[j] = Format::narrow(rstd * (h - product));
  }
}

void add_weight_gradients(const std::vector<Terms>& terms, std::size_t columns,
                          bool with_bias, double* sums) {
  for (std::size_t j = 0; j < terms.size(); ++j) {
    const float product = terms[j].g * terms[j].xhat;
    sums[j] += static_cast<double>(product);
    if (with_bias) sums[columns + j] += static_cast<double>(terms[j].g);
  }
}

template <class Format, class Weight, bool kMean>
void backward(const void* arguments, const Tile& tile, Result&) {
  using Element = typename Format::Element;
  const auto& args = *static_cast<const RowNormArgs*>(arguments);
  const std::size_t columns = args.columns;
  using At = NormBackwardOperand<kMean>;
  for (std::size_t i = 0; i < tile.count; ++i) {
    const float mean = kMean ? *row<float>(tile, At::mean, i, 1) : 0;
    const float rstd = *row<float>(tile, At::rstd, i, 1);
    const std::vector<Terms> terms = terms_of<Format, Weight>(
        args, row<Element>(tile, At::g, i, columns),
        row<Element>(tile, At::x, i, columns),
        static_cast<typename Weight::Element*>(tile.operands[At::weight]),
        kMean, mean, rstd, columns);
    if (tile.partial != nullptr) {
      add_weight_gradients(terms, columns, kMean,
                           static_cast<double*>(tile.partial));
    }
    if (tile.operands[At::dx] == nullptr) continue;
    Sums sums;
    for (std::size_t at = 0; at < columns; at += kChunkColumns) {
      sums.add(&terms[at], part_of(columns, at), kMean);
    }
    write_dx<Format>(terms, norm_backward_factors(sums.h, sums.hx, columns),
                     rstd, kMean, row<Element>(tile, At::dx, i, columns));
  }
}

template <class Format, class Bias>
void residual_add(const void* args, const Tile& tile, Result&) {
  using At = ResidualAddOperand;
  const std::size_t columns =
      static_cast<const ResidualAddArgs*>(args)->columns;
  const auto* x = static_cast<typename Format::Element*>(tile.operands[At::x]);
  const auto* bias =
      static_cast<typename Bias::Element*>(tile.operands[At::bias]);
  auto* residual = static_cast<float*>(tile.operands[At::residual]);
  for (std::size_t i = 0; i < tile.count * columns; ++i) {
    float sum = Format::widen(x[i]);
    if (bias != nullptr) sum = sum + Bias::widen(bias[i % columns]);
    residual[i] = residual[i] + sum;
  }
}

}  // namespace

SWAMP_KERNELS(layer_norm, kSameOrWide, norm<A, B, true>)
SWAMP_KERNELS(rms_norm, kSameOrWide, norm<A, B, false>)
SWAMP_KERNELS(layer_norm_backward, kSameOrWide, backward<A, B, true>)
SWAMP_KERNELS(rms_norm_backward, kSameOrWide, backward<A, B, false>)
SWAMP_KERNELS(residual_add, kSameOrWide, residual_add<A, B>)

}  // namespace swamp::slave::reference
