// The arguments and partial results of the row kernels, and the contract of
// each family. Common to all:
// - In Pass::rows a kernel computes tile.count rows; tile.first is the index of
//   the first of them in its tensor. An operand is these rows, one after
//   another, of args.columns elements each. "Of a row" below means one value
//   for each row; "constant" means one row for the whole launch.
// - In the other passes it computes a piece of one row: tile.count columns, the
//   first of which is column tile.first. An operand "of a row" is then a single
//   value that is only read, and of a constant there are these columns. A map
//   takes any piece.
// - A sum has no outputs, and writes a record for each chunk of its piece:
//   tile.partial is the record of the first chunk, and the others follow. The
//   piece must be whole chunks. A kernel whose record is chains (ChainSums)
//   adds to it, so its piece may begin and end at any multiple of kChains.
// - Whole rows and the two passes on columns compute the same bits.
// - An output may be the same memory as an input of the same type (in place).
//   Otherwise operands must not overlap.
// - The softmax of 16-bit rows of at most one chunk uses tile.scratch: a float
//   for each column, aligned to 64 bytes, or null. It does not change the bits.
// - Whole rows have at most kMaxRowColumns columns; those of softmax_backward,
//   cross_entropy_backward and residual_add any number.
// - r() rounds to the type of the output; every other operation is float32, in
//   the order of the formula. Row kernels flag no elements.
#ifndef SWAMP_SLAVE_ROW_ARGS_H_
#define SWAMP_SLAVE_ROW_ARGS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "slave/row_math.h"

namespace swamp::slave {

inline constexpr std::size_t kMaxRowChunks = 64;
inline constexpr std::size_t kMaxRowColumns = kMaxRowChunks * kChunkColumns;

// scaled_softmax: x (in), mask (in, a byte per column; null: none), y (out).
//   e_j = f32(x_j) * scale; -10000 if the mask's byte is not 0
//   y_j = r(E(e_j - m_c) * f_c)        m_c, f_c of the chunk: slave/row_math.h
//   y_j = r((e_j - high) - low)        if args.log; LogSumExp: slave/row_math.h
// A row that contains nan or +inf, or nothing but -inf, becomes nan.
// Passes on columns have two more operands: the SoftmaxFactor of each chunk of
//   the tile (null in a sum), and `valid` (uint64), the number of columns of
//   the segment that count (null: all). y is 0 in the columns after them. The
//   record of a sum is a SoftmaxChunk.
struct SoftmaxArgs {
  std::uint64_t columns;
  // If not 0 (causal), only the first i % causal_rows + 1 columns of row i
  // count, and the output is 0 in the others. Not used on columns.
  std::uint64_t causal_rows;
  float scale;
  std::uint32_t round_scale;  // 1: rounds scale to the type of x, as apex does
  // 1: a row whose largest element is -10000, so all are masked, becomes 0, as
  // in apex.
  std::uint32_t zero_masked_rows;
  std::uint32_t log;  // 1: y is the log of the softmax
};

inline constexpr float kMasked = -10000.0f;

// SoftmaxFactor is what a map needs to know of a chunk; if args.log, the
// LogSumExp of the row.
struct SoftmaxFactor {
  float shift;   // chunk_shift() of its max
  float factor;  // f_c; nan if the row is
};

// softmax_factor() is the factor of one chunk of a row.
inline SoftmaxFactor softmax_factor(const SoftmaxArgs& args, float chunk_max,
                                    const SoftmaxTotal& total) noexcept {
  if (args.log != 0) {
    const LogSumExp lse = log_sum_exp(total.max, log_positive(total.sum));
    return {lse.high, lse.low};
  }
  const bool zero = args.zero_masked_rows != 0 && total.max == kMasked;
  return {chunk_shift(chunk_max), zero ? 0.0f : total.factor(chunk_max)};
}

// softmax_backward: g (in), y (in), dx (out; may be g or y).
//   t_j = g_j * y_j; D = f32(sum of the sums of t_j by chunk)
//   dx_j = r(scale * (t_j - y_j * D))
//   If args.log, y is the log of the softmax:
//   t_j = g_j; dx_j = r(scale * (g_j - E(min(0, y_j)) * D))
// Passes on columns have two more operands: D (null in a sum) and `valid`, as
//   above. The record of a sum is ChainSums.
struct SoftmaxBackwardArgs {
  std::uint64_t columns;
  std::uint64_t causal_rows;  // as in SoftmaxArgs
  float scale;
  std::uint32_t log;  // as in SoftmaxArgs
};

// ChainSums is the partial result of a sum over a chunk: chain i holds the
// elements whose column is i mod kChains, added in their order.
struct ChainSums {
  float chains[kChains];

  // total() adds the chains as a fixed binary tree.
  float total() const noexcept {
    float sum[kChains];
    for (std::size_t i = 0; i < kChains; ++i) sum[i] = chains[i];
    for (std::size_t distance = kChains / 2; distance != 0; distance /= 2) {
      for (std::size_t i = 0; i < distance; ++i) sum[i] += sum[i + distance];
    }
    return sum[0];
  }
};

// cross_entropy: x (in, logits), target (in, of a row), weight (in, constant,
//   float32; null: 1), loss (out, of a row, float32), high and low of LogSumExp
//   (out, of a row, float32; low null: not wanted). With t the target and m the
//   largest x_j, in double:
//   l = log(sum of exp(x_j - m)), combined from chunks: slave/row_math.h
//   loss = f32(confidence * w_t * ((m - x_t) + l)
//              + uniform * (weight_sum * l - sum of w_j * (x_j - m))
//              + z_loss * (m + l)^2)
//   The loss of an ignored row is 0; its LogSumExp is computed all the same.
// A sum without weights reads x, and its record is a CrossEntropyChunk. A sum
//   with weights adds to CrossEntropySums of one chunk, so its piece may begin
//   at any multiple of kChains; `target` is then the SoftmaxChunk of the chunk.
//   The master computes the rest. It has no Pass::map.
// cross_entropy_backward: x (in), target (in, of a row), CrossEntropyRow (in,
//   of a row), weight (in, constant, float32; null: 1), dx (out; may be x).
//   p_j = E(min(0, (f32(x_j) - high) - low))
//   dx_j = r(g * (p_j * a - c_j)), dx_t = r(g * ((p_t * a - b) - c_t)) with
//   a = f32(confidence * w_t + uniform * weight_sum
//           + 2 * z_loss * (high + low)),
//   b = f32(confidence * w_t), c_j = f32(uniform) * w_j
//   dx of an ignored row is 0. It has no Pass::sum.
struct CrossEntropyArgs {
  std::uint64_t columns;
  std::int64_t first_class;    // of column 0
  std::int64_t ignore_index;   // of a target
  double confidence;           // 1 - label smoothing
  double uniform;              // label smoothing / number of classes
  double weight_sum;           // of all classes; without weights their number
  double z_loss;               // factor of lse^2
  std::uint32_t target_bytes;  // 4 or 8
  std::uint32_t reserved;
};

// CrossEntropyRow is what backward needs to know of a row.
struct CrossEntropyRow {
  LogSumExp lse;
  float gradient;       // g
  float target_weight;  // w_t; 1 without weights
};

// CrossEntropyChunk is the partial result of one chunk. All terms of sum_x have
// the same sign, so that it is exact to a few roundings for any logits.
struct CrossEntropyChunk {
  SoftmaxChunk exp;
  float sum_x;   // of w_j * (x_j - chunk_shift(max)); 0 if uniform is 0
  float weight;  // sum of w_j; 0 if uniform is 0
};

// CrossEntropySums is what weights add to the CrossEntropyChunk of one chunk.
struct CrossEntropySums {
  ChainSums x, weight;
};

// CrossEntropyParts has the sums of one row, or of one rank's classes of it.
struct CrossEntropyParts {
  double sum;     // of exp(x_j - max)
  double sum_x;   // of w_j * (x_j - chunk_shift(max))
  double weight;  // of w_j
  float max;
  float target_x;  // x_t

  // sum_x_from() returns the sum of w_j * (x_j - other).
  double sum_x_from(float other) const noexcept {
    // The weight may have overflowed to inf.
    if (chunk_shift(max) == other) return sum_x;
    return sum_x + weight * (static_cast<double>(chunk_shift(max)) -
                             static_cast<double>(other));
  }
};

// combine_chunks() combines the chunks of a row. It sets target_x to 0.
inline CrossEntropyParts combine_chunks(const CrossEntropyChunk* chunks,
                                        std::size_t count) noexcept {
  const float lowest = -std::numeric_limits<float>::infinity();
  CrossEntropyParts parts = {0, 0, 0, lowest, 0};
  for (std::size_t c = 0; c < count; ++c) {
    const float max = chunks[c].exp.max;
    if (parts.max == parts.max && !(max <= parts.max)) parts.max = max;
  }
  for (std::size_t c = 0; c < count; ++c) {
    parts.sum +=
        static_cast<double>(chunks[c].exp.sum) *
        static_cast<double>(exp_nonpositive(chunks[c].exp.max - parts.max));
    const CrossEntropyParts chunk = {0, static_cast<double>(chunks[c].sum_x),
                                     static_cast<double>(chunks[c].weight),
                                     chunks[c].exp.max, 0};
    parts.sum_x += chunk.sum_x_from(chunk_shift(parts.max));
    parts.weight += chunk.weight;
  }
  return parts;
}

// cross_entropy_loss() finishes a row that is not ignored; log_sum is
// log(parts.sum).
inline float cross_entropy_loss(const CrossEntropyArgs& args,
                                const CrossEntropyParts& parts, double log_sum,
                                float target_weight) noexcept {
  const double max = static_cast<double>(parts.max);
  double loss = args.confidence * static_cast<double>(target_weight) *
                ((max - static_cast<double>(parts.target_x)) + log_sum);
  if (args.uniform != 0) {
    loss += args.uniform * (args.weight_sum * log_sum - parts.sum_x);
  }
  const double lse = max + log_sum;
  if (args.z_loss != 0) loss += args.z_loss * lse * lse;
  return static_cast<float>(loss);
}

// CrossEntropyFactors are the factors of one row in backward.
struct CrossEntropyFactors {
  float a, b, c;
};
inline CrossEntropyFactors cross_entropy_factors(
    const CrossEntropyArgs& args, const CrossEntropyRow& row) noexcept {
  const double b = args.confidence * static_cast<double>(row.target_weight);
  double a = b + args.uniform * args.weight_sum;
  if (args.z_loss != 0) {
    a += 2 * args.z_loss *
         (static_cast<double>(row.lse.high) + static_cast<double>(row.lse.low));
  }
  return {static_cast<float>(a), static_cast<float>(b),
          static_cast<float>(args.uniform)};
}

// target_of() is the target of row i of a tile.
inline std::int64_t target_of(const CrossEntropyArgs& args, const void* targets,
                              std::size_t i) noexcept {
  return args.target_bytes == 4 ? static_cast<const std::int32_t*>(targets)[i]
                                : static_cast<const std::int64_t*>(targets)[i];
}

// layer_norm: x (in), weight (in, constant; null: 1), bias (in, constant; null:
//   0), y (out), mean (out, of a row, float32), rstd (out, of a row, float32).
//   mean = f32(sum of x_j / columns), rstd = f32(1 / sqrt(variance + eps)),
//   both from double: norm_statistics()
//   y_j = r(((x_j - mean) * rstd) * (weight_j + weight_offset) + bias_j)
// rms_norm: x (in), weight (in, constant; null: 1), y (out), rstd (out, of a
//   row, float32): the same without mean and bias, and with the mean of the
//   squares as the variance.
// If the type of weight and bias is not that of x, it ends the name.
// A sum reads x; its record is a LayerNormChunk or RmsNormChunk. A map reads
//   mean and rstd.
// layer_norm_backward: g (in), x (in), mean (in, of a row), rstd (in, of a
//   row), weight (in, constant; null: 1), dx (out; may be g or x; null: not
//   computed). Partial result, if not null: 2 * columns doubles, to which the
//   rows are added in their order: first the gradient of weight (sums of
//   g_j * xhat_j), then that of bias (sums of g_j).
//   xhat_j = (x_j - mean) * rstd; h_j = g_j * (weight_j + weight_offset)
//   a = f32(sum of h_j / columns), b = f32(sum of h_j * xhat_j / columns)
//   dx_j = r(rstd * ((h_j - a) - xhat_j * b))
// rms_norm_backward: g, x, rstd, weight, dx: xhat_j = x_j * rstd and a = 0. The
//   partial result is `columns` doubles.
// The record of a sum is NormBackwardSums. In a map the first operand of mean
//   and rstd is a NormBackwardRow, and tile.partial begins with column 0 of the
//   segment. Without mean, sum_h and a are 0.
struct RowNormArgs {
  std::uint64_t columns;
  double eps;
  float weight_offset;  // 1: zero-centred weight
  std::uint32_t reserved;
};

// LayerNormChunk is the partial result of one chunk. `sum` is computed in
// kWideChains chains of double. `squares` is the sum of (x - mean)^2 with
// mean = f32(sum / columns of the chunk).
struct LayerNormChunk {
  double sum;
  float mean;
  float squares;
};
inline constexpr std::size_t kWideChains = 32;

// RmsNormChunk is the partial result of one chunk.
struct RmsNormChunk {
  float squares;
  float reserved;  // partial results are multiples of 8 bytes
};

template <bool kMean>
using NormChunk = std::conditional_t<kMean, LayerNormChunk, RmsNormChunk>;

// NormStatistics are what forward computes of a row; without a mean it is 0.
struct NormStatistics {
  float mean, rstd;
};

// norm_statistics() combines the chunks of a row. It converts the squares of
// LayerNorm, which are relative to the mean of each chunk, to the mean of the
// row.
inline NormStatistics norm_statistics(const LayerNormChunk* chunks,
                                      std::size_t columns,
                                      double eps) noexcept {
  const std::size_t count = (columns + kChunkColumns - 1) / kChunkColumns;
  double sum = 0;
  for (std::size_t c = 0; c < count; ++c) sum += chunks[c].sum;
  const double all = static_cast<double>(columns);
  const double mean = sum / all;
  double squares = 0;
  for (std::size_t c = 0; c < count; ++c) {
    const std::size_t left = columns - c * kChunkColumns;
    const double part =
        static_cast<double>(left < kChunkColumns ? left : kChunkColumns);
    const double chunk_mean = static_cast<double>(chunks[c].mean);
    const double shift = chunk_mean - mean;
    const double rest = chunks[c].sum - part * chunk_mean;
    squares += static_cast<double>(chunks[c].squares) +
               shift * (2 * rest + part * shift);
  }
  const double variance = squares < 0 ? 0 : squares / all;
  return {static_cast<float>(mean),
          static_cast<float>(1.0 / std::sqrt(variance + eps))};
}
inline NormStatistics norm_statistics(const RmsNormChunk* chunks,
                                      std::size_t columns,
                                      double eps) noexcept {
  const std::size_t count = (columns + kChunkColumns - 1) / kChunkColumns;
  double squares = 0;
  for (std::size_t c = 0; c < count; ++c) {
    squares += static_cast<double>(chunks[c].squares);
  }
  const double variance = squares / static_cast<double>(columns);
  return {0, static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

struct NormBackwardChunk {
  float sum_h;
  float sum_hx;  // of h_j * xhat_j
};

struct NormBackwardRow {
  float mean, rstd, a, b;
};

// NormBackwardSums is the partial result of one chunk.
struct NormBackwardSums {
  ChainSums h, hx;

  NormBackwardChunk chunk() const noexcept { return {h.total(), hx.total()}; }
};

// combine_chunks() computes the factors of a row.
inline NormBackwardRow combine_chunks(const NormBackwardChunk* chunks,
                                      std::size_t columns, float mean,
                                      float rstd) noexcept {
  const std::size_t count = (columns + kChunkColumns - 1) / kChunkColumns;
  double sum_h = 0, sum_hx = 0;
  for (std::size_t c = 0; c < count; ++c) {
    sum_h += static_cast<double>(chunks[c].sum_h);
    sum_hx += static_cast<double>(chunks[c].sum_hx);
  }
  const double all = static_cast<double>(columns);
  return {mean, rstd, static_cast<float>(sum_h / all),
          static_cast<float>(sum_hx / all)};
}

// residual_add: x (in), bias (in, constant; null: none), residual (inout,
//   float32). If the type of the bias is not that of x, it ends the name.
//   residual_j = residual_j + (x_j + bias_j)
struct ResidualAddArgs {
  std::uint64_t columns;
};

// moe_count: expert (in), the expert of each entry; -1: none. Partial result of
//   a grain: MoeArgs::counts() numbers (uint32), the entries of each expert.
//   Flags experts that are not in [-1, experts).
// moe_count_map: map (in, a byte for each expert); a byte that is not 0 chooses
//   the expert. Flags nothing.
// moe_position: expert (in), base (in, constant: a uint32 for each expert),
//   position (out, int32). Partial result: as of moe_count. A tile lies within
//   one grain, and base is the number of entries of each expert before it.
//   position = number of earlier entries of the same expert, -1 if that is not
//   below the capacity or the entry is -1
// moe_position_map: the same for a map, with a position for each expert.
struct MoeArgs {
  std::uint32_t experts;
  std::uint32_t capacity;  // of moe_position

  // Partial results are multiples of 8 bytes.
  std::size_t counts() const noexcept { return (experts + 1) / 2 * 2; }
};

// moe_sum: x0, x1, x2 (in; null: absent, the last ones first), sum (in,
//   float32; null: absent), factors (in, constant, MoeFactors; null: all 1),
//   y (out; may be sum). If the type of y is not that of x, it ends the name.
//   y_j = r(((sum_j + x0_j * factor0) + x1_j * factor1) + x2_j * factor2)
//   Without sum, the first product is the first term. A single x without sum
//   and factors is copied; without any x, y is 0.
struct MoeSumArgs {};
inline constexpr int kMoeSources = 3;
struct MoeFactors {
  float factor[kMoeSources];
  float reserved;
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_ROW_ARGS_H_
