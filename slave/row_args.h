// The arguments and partial results of the row kernels, and the contract of
// each family. Common to all:
// - In Pass::rows a kernel computes tile.count rows; tile.first is the index of
//   the first of them in its tensor. An operand is these rows, one after
//   another, of args.columns elements each. "Of a row" below means one value
//   for each row; "constant" means one row for the whole launch.
// - In the other passes it computes a piece of one row: tile.count columns from
//   column tile.first on. A constant has these columns.
//   Pieces begin at multiples of kChains; in Pass::sum, at multiples of the
//   RowState's sum_step. tile.state keeps what Pass::map must know of the row.
// - Whole rows and pieces compute the same bits. Both have the state.
// - An output may be the same memory as an input of the same type (in place).
//   Otherwise operands must not overlap.
// - The softmax of 16-bit rows of at most one chunk uses tile.scratch: a float
//   for each column, aligned to 64 bytes, or null. It does not change the bits.
// - r() rounds to the type of the output; every other operation is float32, in
//   the order of the formula. Row kernels flag no elements.
#ifndef SWAMP_SLAVE_ROW_ARGS_H_
#define SWAMP_SLAVE_ROW_ARGS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "slave/kernel.h"
#include "slave/row_math.h"

namespace swamp::slave {

static_assert(kMapStep == kChains);

// ends_chunk() returns whether a chunk of a row ends with the column before
// `end`.
inline bool ends_chunk(std::size_t end, std::size_t columns) noexcept {
  return end % kChunkColumns == 0 || end == columns;
}

// RowPart is the rows of a tile: whole rows, or one row's columns from `first`
// on.
struct RowPart {
  std::size_t rows, columns;
  std::size_t row;    // index of the first row in its tensor
  std::size_t first;  // column
  bool sums, maps;    // what to do: for whole rows both
  bool is_last;       // whether to write the outputs of a row
};
inline RowPart part_of_rows(const Tile& tile, std::size_t columns) noexcept {
  if (tile.pass == Pass::rows) {
    return {tile.count, columns, tile.first, 0, true, true, true};
  }
  const bool sums = tile.pass == Pass::sum;
  return {1, tile.count, tile.row, tile.first, sums, !sums, tile.is_last};
}

// chunks_of() returns the number of chunks of a row.
inline std::size_t chunks_of(std::size_t columns) noexcept {
  return (columns + kChunkColumns - 1) / kChunkColumns;
}

// for_each_chunk() divides the `columns` columns from `first` on at the ends of
// chunks and calls visit(chunk, at, count) for each part; `at` counts from
// `first`.
template <class Visit>
inline void for_each_chunk(std::size_t first, std::size_t columns,
                           const Visit& visit) {
  for (std::size_t at = 0; at < columns;) {
    const std::size_t column = first + at;
    const std::size_t left = kChunkColumns - column % kChunkColumns;
    const std::size_t count = left < columns - at ? left : columns - at;
    visit(column / kChunkColumns, at, count);
    at += count;
  }
}

// scaled_softmax: x (in), mask (in, a byte per column; null: none), y (out).
//   e_j = f32(x_j) * scale; -10000 if the mask's byte is not 0
//   y_j = r(E(e_j - m_c) * f_c)        m_c, f_c of the chunk: slave/row_math.h
//   y_j = r((e_j - high) - low)        if args.log; LogSumExp: slave/row_math.h
// A row that contains nan or +inf, or nothing but -inf, becomes nan.
// The state is a SoftmaxState, and a SoftmaxChunk for each chunk.
struct SoftmaxArgs {
  std::uint64_t columns;
  // If not 0 (causal), only the first i % causal_rows + 1 columns of row i
  // count, and the output is 0 in the others.
  std::uint64_t causal_rows;
  float scale;
  std::uint32_t round_scale;  // 1: rounds scale to the type of x, as apex does
  // 1: a row whose largest element is -10000, so all are masked, becomes 0, as
  // in apex.
  std::uint32_t zero_masked_rows;
  std::uint32_t log;  // 1: y is the log of the softmax
};
struct SoftmaxOperand {
  enum : int { x, mask, y, count };
};

inline constexpr float kMasked = -10000.0f;

// SoftmaxState has the sum of a row from the first piece of Pass::map on.
struct SoftmaxState {
  SoftmaxTotal total;

  SoftmaxChunk* chunks() noexcept {
    return reinterpret_cast<SoftmaxChunk*>(this + 1);
  }
};

// valid_columns() returns how many columns of a row count.
template <class Args>
std::size_t valid_columns(const Args& args, std::size_t row) noexcept {
  if (args.causal_rows == 0) return args.columns;
  const std::size_t valid = row % args.causal_rows + 1;
  return valid < args.columns ? valid : args.columns;
}

// SoftmaxFactor is what y needs to know of a chunk; if args.log, the LogSumExp
// of the row.
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

// softmax_backward: g (in), y (in), dx (out; may be g or y; null: not wanted),
//   dot (out, of a row, float32: D; null: not wanted).
//   t_j = g_j * y_j; D = f32(sum of the sums of t_j by chunk)
//   dx_j = r(scale * (t_j - y_j * D))
//   If args.log, y is the log of the softmax:
//   t_j = g_j; dx_j = r(scale * (g_j - E(min(0, y_j)) * D))
// The state is a SoftmaxBackwardState.
struct SoftmaxBackwardArgs {
  std::uint64_t columns;
  std::uint64_t causal_rows;  // as in SoftmaxArgs
  float scale;
  std::uint32_t log;  // as in SoftmaxArgs
};
struct SoftmaxBackwardOperand {
  enum : int { g, y, dx, dot, count };
};

// SoftmaxBackwardState has the sums of the current chunk, and the sum of the
// chunks before it.
struct SoftmaxBackwardState {
  ChainSums terms;
  double dot;
};

// cross_entropy: x (in, logits), target (in, of a row, int64; null: none has
//   one), weight (in, constant, float32; null: 1), loss (out, of a row,
//   float32; null without targets), high and low of LogSumExp (out, of a row,
//   float32; low null: not wanted). With t the target and m the largest x_j, in
//   double: l = log(sum of exp(x_j - m)), combined from chunks:
//   slave/row_math.h loss = f32(confidence * w_t * ((m - x_t) + l)
//              + uniform * (weight_sum * l - sum of w_j * (x_j - m))
//              + z_loss * (m + l)^2)
//   The loss of an ignored row is 0; its LogSumExp is computed all the same.
// If args.gives_parts, the first output is instead the row's CrossEntropyParts,
//   and there are no others. The state is a CrossEntropyState, and a
//   CrossEntropyChunk for each chunk.
// cross_entropy_backward: x (in), target (in, of a row, int64; null: none has
//   one), row (in, of a row, CrossEntropyRow), weight (in, constant, float32;
//   null: 1), dx (out; may be x).
//   p_j = E(min(0, (f32(x_j) - high) - low))
//   dx_j = r(g * (p_j * a - c_j)), dx_t = r(g * ((p_t * a - b) - c_t)) with
//   a = f32(confidence * w_t + uniform * weight_sum
//           + 2 * z_loss * (high + low)),
//   b = f32(confidence * w_t), c_j = f32(uniform) * w_j
//   dx of an ignored row is 0. It needs neither a state nor Pass::sum.
struct CrossEntropyArgs {
  std::uint64_t columns;
  std::int64_t first_class;   // of column 0
  std::int64_t ignore_index;  // of a target
  double confidence;          // 1 - label smoothing
  double uniform;             // label smoothing / number of classes
  double weight_sum;          // of all classes; without weights their number
  double z_loss;              // factor of lse^2
  std::uint32_t gives_parts;  // 0 or 1; not of backward
  std::uint32_t reserved;
};
struct CrossEntropyOperand {
  enum : int { x, target, weight, loss, high, low, count };
};
// `target` is the same operand of both.
struct CrossEntropyBackwardOperand {
  enum : int { x, target, row, weight, dx, count };
};

// CrossEntropyRow is what backward needs to know of a row.
struct CrossEntropyRow {
  LogSumExp lse;
  float gradient;       // g
  float target_weight;  // w_t; 1 without weights
};

// CrossEntropyChunk has the sums of one chunk. All terms of sum_x have
// the same sign, so that it is exact to a few roundings for any logits.
struct CrossEntropyChunk {
  SoftmaxChunk exp;
  float sum_x;   // of w_j * (x_j - chunk_shift(max)); 0 if uniform is 0
  float weight;  // sum of w_j; 0 if uniform is 0
};

// CrossEntropyState has the logit and weight of the target, and the weighted
// sums of the current chunk in Pass::map: they need the chunk's maximum, and a
// small LDM cannot hold a chunk of both x and the weights in float32.
struct CrossEntropyState {
  ChainSums x, weight;
  float target_x;  // 0 if the target is not among the columns
  float target_weight;

  CrossEntropyChunk* chunks() noexcept {
    return reinterpret_cast<CrossEntropyChunk*>(this + 1);
  }
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

// target_column() returns the column of a target, counted from column `first`;
// if another rank has it, a number beyond all columns.
inline std::uint64_t target_column(const CrossEntropyArgs& args,
                                   std::int64_t target,
                                   std::size_t first) noexcept {
  return static_cast<std::uint64_t>(target - args.first_class) - first;
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
// The state of both is a NormState, and a chunk's sums for each chunk.
//
// layer_norm_backward: g (in), x (in), mean (in, of a row), rstd (in, of a
//   row), weight (in, constant; null: 1), dx (out; may be g or x; null: not
//   computed). Partial result, if not null: 2 * columns doubles, to which the
//   rows are added in their order: first the gradient of weight (sums of
//   g_j * xhat_j), then the gradient of bias (sums of g_j).
//   xhat_j = (x_j - mean) * rstd; h_j = g_j * (weight_j + weight_offset)
//   a = f32(sum of h_j / columns), b = f32(sum of h_j * xhat_j / columns)
//   dx_j = r(rstd * ((h_j - a) - xhat_j * b))
// rms_norm_backward: g, x, rstd, weight, dx: xhat_j = x_j * rstd and a = 0. The
//   partial result is `columns` doubles.
// The state of both is a NormBackwardState.
struct RowNormArgs {
  std::uint64_t columns;
  double eps;
  float weight_offset;  // 1: zero-centred weight
  std::uint32_t reserved;
};
// An operand that rms_norm lacks has the number of the one beside it.
template <bool kMean>
struct NormOperand {
  enum : int {
    x,
    weight,
    bias = weight + kMean,
    y,
    mean,
    rstd = mean + kMean,
    count
  };
};
template <bool kMean>
struct NormBackwardOperand {
  enum : int { g, x, mean, rstd = mean + kMean, weight, dx, count };
};

// LayerNormChunk has the sums of one chunk. `sum` is computed in
// kWideChains chains of double. `squares` is the sum of (x - mean)^2 with
// mean = f32(sum / columns of the chunk).
struct LayerNormChunk {
  double sum;
  float mean;
  float squares;
};
inline constexpr std::size_t kWideChains = 32;

// RmsNormChunk has the sum of one chunk.
struct RmsNormChunk {
  float squares;
};

template <bool kMean>
using NormChunk = std::conditional_t<kMean, LayerNormChunk, RmsNormChunk>;

// NormStatistics are what forward computes of a row; without a mean it is 0.
struct NormStatistics {
  float mean, rstd;
};

// NormState has the statistics of a row, from the first piece of Pass::map on.
struct NormState {
  NormStatistics row;

  template <bool kMean>
  NormChunk<kMean>* chunks() noexcept {
    return reinterpret_cast<NormChunk<kMean>*>(this + 1);
  }
};

// norm_statistics() combines the chunks of a row. It converts the squares of
// LayerNorm, which are relative to the mean of each chunk, to the mean of the
// row.
inline NormStatistics norm_statistics(const LayerNormChunk* chunks,
                                      std::size_t columns,
                                      double eps) noexcept {
  const std::size_t count = chunks_of(columns);
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
  const std::size_t count = chunks_of(columns);
  double squares = 0;
  for (std::size_t c = 0; c < count; ++c) {
    squares += static_cast<double>(chunks[c].squares);
  }
  const double variance = squares / static_cast<double>(columns);
  return {0, static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

// NormBackwardState has the sums of h and h * xhat of the current chunk, and
// their totals of the chunks before it.
struct NormBackwardState {
  ChainSums h, hx;
  double sum_h, sum_hx;
};

// NormBackwardFactors are a and b.
struct NormBackwardFactors {
  float a, b;
};
inline NormBackwardFactors norm_backward_factors(double sum_h, double sum_hx,
                                                 std::size_t columns) noexcept {
  const double all = static_cast<double>(columns);
  return {static_cast<float>(sum_h / all), static_cast<float>(sum_hx / all)};
}

// row_sums: x (in), factor (in; null: absent), shift (in, float32, one for each
//   row; null: 0), sum (out, float64), factor_sum (out, float64; null: absent,
//   as without a factor)
//   d_j = x_j - shift in double; the term is d_j (plain), d_j * d_j (square),
//   d_j * factor_j (product), or m_j * (e_j - 0.5 * m_j) of e_j = |d_j -
//   factor_j| and m_j = min(e_j, limit) (loss). The sum has kWideChains chains,
//   by the column, which are added as a tree; factor_sum, of products, is that
//   of the factors. narrow_plain and narrow_loss, of
//   16 bits without shift, are float32, in kChains chains. largest and
//   smallest, of 16 bits, are not sums but extremes, nan if an element is;
//   0 is larger than -0.
struct RowSumsArgs {
  enum Term : std::uint32_t {
    plain,
    square,
    product,
    loss,
    narrow_plain,
    narrow_loss,
    largest,
    smallest
  };
  std::uint64_t columns;
  Term term;
  float limit;
};
struct RowSumsOperand {
  enum : int { x, factor, shift, sum, factor_sum, count };
};
// RowSumsState holds the chains of a row that comes in pieces.
struct RowSumsState {
  double chains[kWideChains];  // or kChains of float32
  double factor_chains[kWideChains];
};
static_assert(sizeof(RowSumsState::chains) == kChains * sizeof(float));

// column_sums: x (in, lines), sum (out, float64 or, of float64, float32). A
// unit is a column.
//   sum_j = ((0 + x_0j) + x_1j) + ... in double, line after line
struct ColumnSumsArgs {};
struct ColumnSumsOperand {
  enum : int { x, sum, count };
};

// channel_sums: x (in, lines), factor (in, lines; null: absent), shift (in,
//   float32; null: 0), sum (out, float64), factor_sum (out, float64; null:
//   absent, as without a factor). A unit is a column of the lines.
//   The sums of row_sums, without losses, of columns instead of rows: a line is
//   a column there. Scratch memory has the chains of both sums, and the shifts,
//   of `block` columns.
struct ChannelSumsArgs {
  std::uint32_t block;
  RowSumsArgs::Term term;
};
using ChannelSumsOperand = RowSumsOperand;
constexpr std::size_t channel_sums_scratch_bytes(std::size_t block) noexcept {
  return (2 * kWideChains + 1) * block * sizeof(double);
}

// row_affine: x (in), gradient (in; null: absent), factors (in, RowFactors, one
//   for each row), y (out)
//   y_j = r((x_j - shift) * x_factor + addend), or, with a gradient,
//   y_j = r(gradient_j * gradient_factor + ((x_j - shift) * x_factor +
//   addend)), each operation in float32
struct RowAffineArgs {
  std::uint64_t columns;
};
struct RowAffineOperand {
  enum : int { x, gradient, factors, y, count };
};
struct RowFactors {
  float shift, x_factor, addend, gradient_factor;
};

// channel_affine: x (in, lines), gradient (in, lines; null: absent), factors
//   (in, RowFactors), y (out, lines). A unit is a column of the lines.
//   The function of row_affine, of columns instead of rows. Scratch memory has
//   the factors of `block` columns.
struct ChannelAffineArgs {
  std::uint64_t block;
};

// residual_add: x (in), bias (in, constant; null: none), residual (inout,
//   float32). If the type of the bias is not that of x, it ends the name.
//   residual_j = residual_j + (x_j + bias_j)
struct ResidualAddArgs {
  std::uint64_t columns;
};
struct ResidualAddOperand {
  enum : int { x, bias, residual, count };
};

// activation: x (in), up (in; null: no gate), y (out)
//   y_j = r(f(x_j)), or r(f(x_j) * up_j)
// activation_backward: gradient (in), x (in), up (in; null: no gate), dx (out),
//   dup (out; null without a gate)
//   dx_j = r(gradient_j * f'(x_j)), or, with a gate,
//   dx_j = r((gradient_j * up_j) * f'(x_j)), dup_j = r(gradient_j * f(x_j))
//   Without a gate, x is the result y if f is tanh, sigmoid or exp.
// The functions are in slave/activation-inl.h. Elements of float32 are computed
// in double, others in float, but for powers in double; every nan becomes the
// same quiet nan. The rows of an operand may have gaps: see Tile::layout.
struct ActivationArgs {
  enum Function : std::uint32_t {
    silu,
    gelu,
    gelu_tanh,
    tanh,
    sigmoid,
    relu,
    relu_squared,
    softplus,
    exp,
    log,
    log1p,
    expm1,
    rsqrt,
    mish,
    elu,
    pow,
    pow_base,
    count
  };
  std::uint64_t columns;
  Function function;
  float beta;       // of softplus, elu, pow (exponent) and pow_base (base)
  float threshold;  // of softplus
  float alpha;      // of elu
  float scale;      // of elu
  std::uint32_t padding;
};
struct ActivationOperand {
  enum : int { x, up, y, count };
};
struct ActivationBackwardOperand {
  enum : int { gradient, x, up, dx, dup, count };
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
struct MoePositionOperand {
  enum : int { expert, map = expert, base, position, count };
};

// moe_sum: x0, x1, x2 (in; null: absent, the last ones first), sum (in,
//   float32; null: absent), factors (in, constant, MoeFactors; null: all 1),
//   y (out; may be sum). If the type of y is not that of x, it ends the name.
//   y_j = r(((sum_j + x0_j * factor0) + x1_j * factor1) + x2_j * factor2)
//   Without sum, the first product is the first term. A single x without sum
//   and factors is copied; without any x, y is 0.
struct MoeSumArgs {};
struct MoeSumOperand {
  enum : int { x0, x1, x2, sum, factors, y, count };
};
inline constexpr int kMoeSources = 3;
struct MoeFactors {
  float factor[kMoeSources];
  float reserved;
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_ROW_ARGS_H_
