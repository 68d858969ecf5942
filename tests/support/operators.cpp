#include "support/operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

#include "support/random.h"
#include "swamp/activation.h"
#include "swamp/attention.h"
#include "swamp/channel_norm.h"
#include "swamp/communicator.h"
#include "swamp/convolution.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"
#include "swamp/moe.h"
#include "swamp/product.h"
#include "swamp/rows.h"

namespace swamp::test {
namespace {

using cli::OperationRow;
using cli::Tensors;

// ---- Options that `swamp predict` lacks. Each is a row.

// The masks of two batches, each for two heads. Row 1 is masked as a whole.
void masked_softmax(SeededCall& c, std::size_t variant) {
  const std::size_t rows = c.size(cli::kSizeRows) / 4 + 1,
                    columns = c.size(cli::kSizeColumns);
  std::uint8_t* const mask = c.bytes(2 * rows * columns, 3);
  std::memset(mask + columns, 1, columns);
  c.is_made(mask);
  SoftmaxOptions options;
  options.scale = 0.3f;
  options.mask = {mask, 2, 2, rows};
  options.zero_masked_rows = variant == 0;
  options.round_scale = variant != 0;
  const Matrix x = c.matrix(4 * rows);
  scaled_softmax(x, c.over(x), options, c.machine);
}

void log_softmax_rows(SeededCall& c, std::size_t) {
  const Matrix x = c.matrix(), gradient = c.matrix();
  const Matrix y = c.over(x);
  log_softmax(x, y, c.machine);
  c.next_call();
  // Of numbers that are also above 0.
  log_softmax_backward(gradient, gradient, c.matrix(), c.machine);
  c.next_call();
  log_softmax_backward(gradient, y, c.over(gradient), c.machine);
}

// One in five targets is ignored.
void cross_entropy_rows(SeededCall& c, std::size_t variant) {
  const std::size_t rows = c.size(cli::kSizeRows),
                    columns = c.size(cli::kSizeColumns);
  const auto* targets = c.made<std::int64_t>(rows, [&](std::size_t i) {
    return i % 5 == 2 ? -100 : static_cast<std::int64_t>(i * 7919 % columns);
  });
  CrossEntropyOptions options;
  options.label_smoothing = variant % 2 != 0 ? 0.1 : 0;
  options.z_loss = variant < 2 ? 0 : 1e-2;
  if (variant >= 2) options.class_weights = c.of_columns();
  const Matrix x = c.matrix();
  float *const losses = c.of_rows(), *const lse = c.of_rows(),
               *const low = c.of_rows(), *const gradients = c.of_rows();
  *c.result<CrossEntropyTotal>() =
      cross_entropy(x, targets, losses, lse, low, options, c.machine);
  c.next_call();
  cross_entropy_backward(x, targets, lse, low, gradients, c.over(x), options,
                         c.machine);
  c.next_call();
  // Other logits, some above the sum of these.
  cross_entropy_backward(c.matrix(), targets, lse, nullptr, gradients,
                         c.matrix(), options, c.machine);
}

// Without weights, or with float32 ones to which 1 is added.
void norm_rows(SeededCall& c, std::size_t variant) {
  const bool with_mean = variant % 2 == 0, weighted = variant >= 2;
  const NormOptions options{1e-5, weighted};
  RowVector weight{nullptr, kFloat32}, bias = weight;
  if (weighted) weight.data = c.of_columns(), bias.data = c.of_columns();
  const Matrix x = c.matrix(), y = c.matrix(), gradient = c.matrix();
  float *const mean = c.of_rows(), *const rstd = c.of_rows(),
               *const dweight = c.of_columns(), *const dbias = c.of_columns(),
               *const only = c.of_columns();  // without dx
  const Matrix dx = c.over(gradient);
  if (with_mean) {
    layer_norm(x, weight, bias, y, mean, rstd, options, c.machine);
    c.next_call();
    layer_norm_backward(gradient, x, mean, rstd, weight, {}, only, dbias,
                        options, c.machine);
    c.next_call();
    layer_norm_backward(gradient, x, mean, rstd, weight, dx, dweight, dbias,
                        options, c.machine);
  } else {
    rms_norm(x, weight, y, rstd, options, c.machine);
    c.next_call();
    rms_norm_backward(gradient, x, rstd, weight, {}, only, options, c.machine);
    c.next_call();
    rms_norm_backward(gradient, x, rstd, weight, dx, dweight, options,
                      c.machine);
  }
}
void residual_add_bias(SeededCall& c, std::size_t) {
  const Matrix x = c.matrix();
  residual_add_(c.matrix(x.rows, x.columns, kFloat32), x, c.vector(),
                c.machine);
}

// Each function alone and in place, and as a gate of two matrices.
ActivationOptions function_of(std::size_t variant) {
  ActivationOptions options;
  options.function = static_cast<Activation>(variant);
  options.beta = 1.5f;
  options.threshold = 2;
  options.alpha = 1.25f;
  return options;
}
void activations(SeededCall& c, std::size_t variant) {
  const ActivationOptions options = function_of(variant);
  const Matrix x = c.matrix(), gradient = c.matrix();
  const Matrix y = c.matrix();
  gated_activation(x, gradient, y, options, c.machine);
  c.next_call();
  gated_activation_backward(y, x, gradient, c.matrix(), c.matrix(), options,
                            c.machine);
  c.next_call();
  activation(x, c.matrix(), options, c.machine);
  c.next_call();
  activation_backward(gradient, x, c.over(gradient), options, c.machine);
  c.next_call();
  activation(x, c.over(x), options, c.machine);
}

// A gate of the halves of a matrix, whose other columns are not written.
void gates_with_gaps(SeededCall& c, std::size_t variant) {
  ActivationOptions options = function_of(variant);
  const Matrix x = c.matrix(), gradient = c.matrix();
  options.row_step = 2 * x.columns + 3;
  // Returns the left half of a matrix, or the right half.
  const auto halves = [&](Matrix all, std::size_t half) {
    return Matrix{static_cast<std::byte*>(all.data) +
                      half * x.columns * kFloatFormats[x.dtype].bytes,
                  x.rows, x.columns, x.dtype};
  };
  const Matrix both = c.matrix(x.rows, options.row_step, x.dtype),
               gradients = c.matrix(x.rows, options.row_step, x.dtype);
  gated_activation(halves(both, 0), halves(both, 1), c.matrix(), options,
                   c.machine);
  c.next_call();
  gated_activation_backward(gradient, halves(both, 0), halves(both, 1),
                            halves(gradients, 0), halves(gradients, 1), options,
                            c.machine);
}

// Sums of rows and of columns, BatchNorm, and GroupNorm with two groups or as
// many as channels.
void channel_rows(SeededCall& c, std::size_t variant) {
  const Matrix x = c.matrix(), gradient = c.matrix();
  const Tensor all{x.data, x.rows * x.columns, x.dtype};
  auto* sums = c.result<double>(3 * x.rows + x.columns);
  for (const void* factor :
       {static_cast<void*>(nullptr), x.data, gradient.data}) {
    sum(all, {x.rows, x.columns, 1}, sums, c.machine, factor);
    c.next_call();
    sums += x.rows;
  }
  sum(all, {1, x.rows, x.columns}, sums, c.machine);
  c.next_call();
  ChannelShape shape{x.rows % 3 == 0 ? x.rows / 3 : x.rows, 0};
  if (variant == 1) shape.groups = shape.channels % 2 == 0 ? 2 : 1;
  if (variant == 2) shape.groups = shape.channels;
  const std::size_t count = shape.statistics(x.rows);
  float *const mean = c.numbers(count), *const variance = c.numbers(count),
               *const rstd = c.numbers(count),
               *const weight = c.numbers(shape.channels),
               *const dweight = c.numbers(shape.channels),
               *const dbias = c.numbers(shape.channels);
  channel_statistics(x, shape, 1e-5, mean, variance, rstd, c.machine);
  c.next_call();
  channel_norm_backward(gradient, x, shape, mean, rstd, weight, variant == 2,
                        c.over(gradient), dweight, dbias, c.machine);
  c.next_call();
  channel_norm(x, shape, mean, rstd, weight, variant == 0 ? nullptr : weight,
               c.over(x), c.machine);
}

// A third of the rows, or none, belongs to no token, and an eighth to the same
// one.
void moe_rows(SeededCall& c, std::size_t variant) {
  const bool all = variant == 0;
  const std::size_t tokens = c.size(cli::kSizeTokens), rows = c.choices();
  const auto* token_of = c.made<std::int64_t>(rows, [&](std::size_t i) {
    if (!all && i % 3 == 1) return std::int64_t{-1};
    return static_cast<std::int64_t>(i % 8 == 2 ? tokens / 2 : i * 7 % tokens);
  });
  const float* const probs = all ? nullptr : c.numbers(rows);
  const Matrix x = c.tokens(), sum = c.tokens(), permuted = c.matrix(rows);
  moe_dot(x, token_of, permuted, c.numbers(rows), c.machine);
  c.next_call();
  moe_permute(x, token_of, probs, permuted, c.machine);
  c.next_call();
  moe_unpermute(permuted, token_of, probs, sum, c.machine);
}

// int64 numbers, or a map; and the tokens of a map that stay.
void moe_choices(SeededCall& c, std::size_t variant) {
  ExpertChoices all = c.experts();
  if (variant == 0) {
    const auto* const narrow = static_cast<const std::int32_t*>(all.data);
    all.data = c.made<std::int64_t>(all.count,
                                    [&](std::size_t i) { return narrow[i]; });
    all.kind = ExpertChoices::kInt64;
  } else {
    all.data = c.bytes(all.count * all.experts, variant + 1);
    all.kind = ExpertChoices::kMap;
  }
  const std::size_t entries = all.count * (variant == 0 ? 1 : all.experts);
  moe_histogram(all, c.result<std::int64_t>(all.experts), c.machine);
  c.next_call();
  moe_positions(all, static_cast<std::int64_t>(variant) * 3 - 1,
                c.integers(entries), c.machine);
  if (variant == 0) return;
  c.next_call();
  const Matrix probs = c.matrix(all.count, all.experts, c.dtype);
  CapacityOptions options{5, DropPolicy::probs, variant == 2};
  if (variant == 3) options.policy = DropPolicy::position;
  moe_apply_capacity(probs, static_cast<const std::uint8_t*>(all.data), options,
                     c.bytes(entries, 1), c.machine);
}

void moe_losses(SeededCall& c, std::size_t) {
  const std::size_t experts = c.size(cli::kSizeExperts),
                    tokens = c.size(cli::kSizeTokens);
  const auto* counts = c.made<std::int64_t>(
      experts, [](std::size_t e) { return e * 7919 % 100; });
  const Matrix logits = c.matrix(tokens, experts, c.dtype);
  const AuxLossOptions options{0.01, 2 * tokens, 2};
  float *const lse = c.numbers(tokens), *const low = c.numbers(tokens);
  auto* const losses = c.result<double>(2);
  losses[0] = moe_aux_loss(logits, counts, options, c.machine);
  c.next_call();
  losses[1] = moe_z_loss(logits, 0.5, lse, low, c.machine);
  c.next_call();
  moe_aux_loss_backward(1024, counts, c.matrix(tokens, experts, c.dtype),
                        options, c.machine);
  c.next_call();
  moe_z_loss_backward(3, logits, 0.5, lse, low, c.over(logits), c.machine);
}

// A quarter of the keys is hidden, and all of query 3. Two heads share one of
// keys, whose values have more columns.
// The mask is bytes, float32, of the dtype, bytes of keys, or of queries; the
// last two variants have one query.
void masked_attention(SeededCall& c, std::size_t variant) {
  Heads q = c.queries(), k = c.keys();
  if (variant > 4) {
    q.rows = 1;
    k.rows += 300;  // several grains of keys
    variant = variant == 5 ? 1 : 2;
  }
  k.heads = (q.heads + 1) / 2;
  q.heads = 2 * k.heads;
  Heads v = k, out = q;
  v.columns = out.columns = q.columns + 5;
  const auto place = [&](Heads like) {
    const std::size_t rows = like.batch * like.heads * like.rows;
    like.data = c.matrix(rows, like.columns, c.dtype).data;
    return like;
  };
  const std::size_t pairs = q.rows * k.rows;
  AttentionOptions options;
  options.causal = variant < 2    ? AttentionCausal::none
                   : variant == 2 ? AttentionCausal::bottom_right
                                  : AttentionCausal::top_left;
  AttentionMask& mask = options.mask;
  if (variant == 0) {
    std::uint8_t* const visible = c.bytes(pairs, 4);
    if (q.rows > 3) std::memset(visible + 3 * k.rows, 0, k.rows);
    c.is_made(visible);
    mask = {visible, 1, 1, q.rows, k.rows, true};
  } else if (variant == 1) {
    const float* const added = c.made<float>(q.heads * pairs, [&](auto i) {
      const bool hidden = i % 4 == 1 || i / k.rows % q.rows == 3;
      return hidden ? -HUGE_VALF : static_cast<float>(i % 5) * 0.25f - 16;
    });
    mask = {added, 1, q.heads, q.rows, k.rows, false, kFloat32};
  } else if (variant == 2) {
    const Matrix added = c.matrix(q.rows, k.rows, c.dtype);
    mask = {added.data, 1, 1, q.rows, k.rows, false, c.dtype};
  } else if (variant == 3) {
    mask = {c.bytes(q.batch * k.rows, 4), q.batch, 1, 1, k.rows, true};
  } else {
    mask = {
        c.numbers(q.heads * q.rows), 1, q.heads, q.rows, 1, false, kFloat32};
  }
  q = place(q), k = place(k), v = place(v), out = place(out);
  const Heads gradient = place(out), dq = place(q), dk = place(k),
              dv = place(v);
  float* const lse = c.numbers(q.batch * q.heads * q.rows);
  attention(q, k, v, out, lse, options, c.machine);
  c.next_call();
  attention_backward(gradient, q, k, v, out, lse, dq, dk, dv, options,
                     c.machine);
}

// Values along rows and columns, after the Hadamard transform, of square
// blocks, and by given factors.
void quantized_matrix(SeededCall& c, std::size_t variant) {
  const bool is_float4 = variant == 1 || variant == 2, square = variant == 2;
  BlockOptions options;
  if (is_float4) options.scaling = BlockScaling::te_nvfp4;
  options.square = square;
  options.hadamard = variant == 1;
  options.tensor_amax = 1000;
  if (is_float4) options.rounding = Rounding::stochastic;
  const Matrix x = c.matrix((c.size(cli::kSizeRows) % 100 / 16 + 1) * 16,
                            c.size(cli::kSizeColumns) % 500 + 1, c.dtype);
  const ScalarType type = variant % 2 == 0 ? kBFloat16 : kFloat32;
  const auto factors = [&](std::size_t count) {
    return static_cast<const float*>(c.next(count * 4, kFloat32));
  };
  if (variant == 3) {
    options.row_factors = factors(x.rows);
    options.column_factors = factors(x.columns);
  }
  const auto format = is_float4 ? kFloat4E2M1FNX2 : kFloat8E4M3FN;
  const Matrix rows = c.matrix(x.rows, x.columns, type),
               columns = c.matrix(x.rows, x.columns, type);
  quantized_values(x, format, &rows, square ? nullptr : &columns, options,
                   c.machine);
  c.next_call();
  const auto maxima = [&](std::size_t lines, std::size_t length) {
    const std::size_t count = lines * ((length + 127) / 128);
    return Tensor{c.next(count * 4, kFloat32), count, kFloat32};
  };
  const Tensor of_rows = maxima(x.rows, x.columns),
               of_columns = maxima(x.columns, x.rows);
  BlockOptions of_blocks;
  of_blocks.hadamard = options.hadamard;
  block_amax(x, &of_rows, &of_columns, of_blocks, c.machine);
  c.next_call();
}

// Codes along rows and columns, or only one of them, and back: by each rule, of
// square blocks, and of transformed columns.
constexpr std::size_t kRuleCount = 12;
void quantize_matrix(SeededCall& c, std::size_t variant) {
  using S = BlockScaling;
  const bool square = variant >= kRuleCount && variant < kRuleCount + 3;
  const bool hadamard = variant == kRuleCount + 3;
  const S more[] = {S::te_nvfp4, S::te_block, S::te_block_power_of_2,
                    S::te_nvfp4};
  const S scaling = variant < kRuleCount ? static_cast<S>(variant)
                                         : more[variant - kRuleCount];
  const BlockScales rule = block_scales(scaling);
  BlockOptions options;
  options.scaling = scaling;
  options.square = square;
  options.tensor_amax = 1000;
  const bool is_float4 = rule.dtype == kFloat8E4M3FN;
  if (is_float4) options.rounding = Rounding::stochastic;
  const Matrix x =
      c.matrix((c.size(cli::kSizeRows) % 100 / 16 + 1) * 16,
               (c.size(cli::kSizeColumns) % 500 / 2 + 1) * 2, c.dtype);
  const auto codes = [&](std::size_t rows, std::size_t columns) {
    const std::size_t block = rule.block == 0 ? columns : rule.block,
                      count = rows * columns / (is_float4 ? 2 : 1);
    const bool is_wide = rule.dtype == kFloat32;
    const std::size_t scales =
        (is_wide && square ? (rows + block - 1) / block : rows) *
        ((columns + block - 1) / block);
    return BlockCodes{
        {c.next(count, std::nullopt), count,
         is_float4 ? kFloat4E2M1FNX2 : kFloat8E4M3FN},
        {c.next(scales * (is_wide ? 4 : 1), std::nullopt), scales, rule.dtype}};
  };
  if (scaling == S::te_nvfp4 && square) {
    options.random = c.random(x.rows * x.columns);
  }
  for (const int outputs : {1, 2, 3}) {
    if (rule.block == 0 && outputs != 1) break;
    options.hadamard = hadamard && outputs != 1;
    const BlockCodes rows = codes(x.rows, x.columns),
                     columns = codes(x.columns, x.rows);
    if (outputs == 2) {  // any codes and scales
      dequantize_blocks(rows, c.matrix(x.rows, x.columns, c.dtype), options,
                        c.machine);
      c.next_call();
    }
    quantize_blocks(x, outputs % 2 != 0 ? &rows : nullptr,
                    outputs / 2 != 0 ? &columns : nullptr, options, c.machine);
    c.next_call();
    options.hadamard = false;
    if (outputs != 1) continue;
    dequantize_blocks(rows, c.matrix(x.rows, x.columns, c.dtype), options,
                      c.machine);
    c.next_call();
  }
}

void quantize_list(SeededCall& c, std::size_t variant) {
  const struct {
    ScalarType format;
    Rounding rounding;
  } casts[] = {{kFloat8E4M3FN, Rounding::nearest_even},
               {kFloat8E5M2FNUZ, Rounding::nearest_away},
               {kFloat6E2M3FN, Rounding::stochastic},
               {kFloat4E2M1FNX2, Rounding::stochastic},
               {kHiFloat8, Rounding::nearest_away},
               {kMxInt8, Rounding::nearest_even},
               {kFloat8E8M0FNU, Rounding::nearest_away}};
  const auto [format, rounding] = casts[variant];
  QuantizeOptions options;
  options.scale = 3;
  options.rounding = rounding;
  options.seed = 5;
  for (const Tensor& x : c.array()) {
    const std::size_t elements = format == kFloat4E2M1FNX2 ? 2 : 1;
    if (x.count % elements != 0) continue;
    const std::size_t count = x.count / elements;
    const Tensor codes{c.next(count, std::nullopt), count, format};
    if (variant == 2) options.random = c.random(x.count);
    // Any codes, and then those of the numbers.
    const std::size_t bytes = x.count * kFloatFormats[x.dtype].bytes;
    dequantize(codes, {c.next(bytes, x.dtype), x.count, x.dtype}, 3, c.machine);
    c.next_call();
    auto* const counts = c.result<std::uint64_t>(3);
    auto* const largest = c.result<float>(2);
    largest[0] = amax(x, true, c.machine);
    c.next_call();
    const QuantizeReport report = quantize(x, codes, options, c.machine);
    largest[1] = report.amax;
    counts[0] = report.saturated;
    counts[1] = report.flushed;
    counts[2] = report.nan_count;
    c.next_call();
    dequantize(codes, x, 0.5f, c.machine);
    c.next_call();
  }
}

// out = 0.3 * a * b + bias; a is its transpose, or out has gaps, also with
// factors of blocks.
void product_rows(SeededCall& c, std::size_t variant) {
  const std::size_t rows = c.size(cli::kSizeRows),
                    columns = c.size(cli::kSizeColumns), terms = rows % 90 + 1;
  const Matrix a = c.matrix(rows, terms, c.dtype),
               b = c.matrix(terms, columns, c.dtype),
               out = c.matrix(rows, columns + 3, kFloat32),
               bias = c.matrix(1, columns, kFloat32);
  Matrices left = Matrices::dense(a.data, 1, rows, terms, c.dtype);
  const bool transposed = variant == 1;
  if (transposed) {
    left = Matrices::dense(a.data, 1, terms, rows, c.dtype).transposed();
  }
  Matrices result = Matrices::dense(out.data, 1, rows, columns, kFloat32),
           add = Matrices::dense(bias.data, 1, rows, columns, kFloat32);
  if (!transposed) result.row_step = columns + 3;
  add.row_step = add.batch_step = 0;
  ProductOptions options;
  options.alpha = 0.3f;
  options.self = &add;
  ProductScales scales;
  if (variant == 2) {
    scales.terms = rows % 2 * 16;
    const std::size_t blocks = scales.blocks(terms);
    scales.a = c.numbers(rows * blocks), scales.b = c.numbers(columns * blocks);
    options.scales = &scales;
  }
  product(result, left, Matrices::dense(b.data, 1, terms, columns, c.dtype),
          options, c.machine);
}

// A convolution and its gradients: one filter and two a group, as many filters
// as channels, a group of more lanes than one block has, and a single row. Of
// an odd number of positions.
void convolutions(SeededCall& c, std::size_t variant) {
  struct Shape {
    std::size_t channels, filters, groups, kernel, height;
    long step, dilation;
  };
  constexpr Shape kShapes[] = {
      {18, 18, 18, 3, 5, 1, 1}, {5, 10, 5, 3, 9, 2, 1},
      {16, 16, 4, 2, 6, 1, 2},  {6, 42, 2, 3, 5, 2, 1},
      {20, 20, 20, 3, 1, 1, 1}, {5, 5, 5, 2, 4, 1, 1},
      {9, 12, 3, 3, 7, 3, 1},   {8, 11, 1, 4, 9, 1, 2},
      {1, 1, 1, 5, 9, 1, 1},    {2, 16, 2, 3, 9, 3, 2}};
  const Shape& one = kShapes[variant];
  const std::size_t width = c.size(cli::kSizeColumns) % 5 + 5;
  const auto of_size = [&](std::size_t size) {
    const std::size_t kernel = size == 1 ? 1 : one.kernel;
    const long padding = size == 1 ? 0 : 1, in = static_cast<long>(size),
               last = in + 2 * padding - 1 -
                      one.dilation * (static_cast<long>(kernel) - 1);
    return ConvolutionDimension{size,
                                static_cast<std::size_t>(last / one.step) + 1,
                                kernel,
                                one.step,
                                one.dilation,
                                -padding,
                                1};
  };
  Convolution of;
  of.images = c.size(cli::kSizeRows) % 3 + 1;
  of.channels = one.channels, of.filters = one.filters, of.groups = one.groups;
  of.height = of_size(one.height), of.width = of_size(width);
  of.dtype = c.dtype;
  of.x_channels_last = variant % 2 != 0;
  of.out_channels_last = of.images % 2 != 0;
  const std::size_t terms =
      of.height.kernel * of.width.kernel * one.channels / one.groups;
  const Matrix x = c.matrix(of.images * one.channels, one.height * width,
                            c.dtype),
               y = c.matrix(of.images * one.filters,
                            of.height.out * of.width.out, c.dtype),
               weight = c.matrix(one.filters, terms, c.dtype),
               bias = c.matrix(1, one.filters, c.dtype);
  convolve(of, x.data, weight.data, variant == 0 ? nullptr : bias.data, y.data,
           c.machine);
  c.next_call();
  const Matrix dw = c.matrix(one.filters, terms, c.dtype);
  convolve_weight(of, x.data, y.data, dw.data, c.machine);
  c.next_call();
  const Matrix dx = c.matrix(x.rows, x.columns, c.dtype),
               exchanged = c.matrix(
                   one.channels, terms * one.filters / one.channels, c.dtype);
  for (ConvolutionDimension* axis : {&of.height, &of.width}) {
    *axis = {axis->out,          axis->in,      axis->kernel, 1,
             -axis->kernel_step, -axis->offset, axis->in_step};
  }
  std::swap(of.channels, of.filters);
  std::swap(of.x_channels_last, of.out_channels_last);
  convolve(of, y.data, exchanged.data, nullptr, dx.data, c.machine);
}

// Codes of positive numbers, with a scale for each block of 32.
void scaled_product(SeededCall& c, std::size_t) {
  const std::size_t terms = c.size(cli::kSizeColumns) * 2 % 301;
  const auto operand = [&](std::size_t rows) {
    ScaledMatrix x;
    x.codes = {c.made<std::uint8_t>(rows * terms,
                                    [](std::size_t i) { return i * 37 % 127; }),
               rows * terms, kFloat8E4M3FN};
    x.block = 32;
    const std::size_t scales = rows * ((terms + 31) / 32);
    x.scales = {c.numbers(scales), scales, kFloat32};
    x.rows = rows;
    x.columns = terms;
    return x;
  };
  const std::size_t rows = c.size(cli::kSizeRows) % 49 + 1,
                    columns = c.size(cli::kSizeColumns) % 59 + 1;
  product(c.matrix(rows, columns, kFloat32), operand(rows), operand(columns),
          c.machine);
}

void hadamard_rows(SeededCall& c, std::size_t) {
  const Matrix x = c.matrix(c.size(cli::kSizeRows) % 69 + 1,
                            (c.size(cli::kSizeColumns) % 99 + 1) * 16, c.dtype);
  hadamard_transform(x, c.over(x), c.machine);
}

// Factors of all kinds: ordinary ones, powers of two, and special ones.
const float kFactors[] = {0.5f,      1,         0.7f, 65536,  0x1p-16f,
                          0,         -0.0f,     -1,   1e-40f, 3.4e38f,
                          0x1p-126f, HUGE_VALF, NAN};
void scaled_lists(SeededCall& c, std::size_t variant) {
  amp_foreach_non_finite_check_and_unscale_(
      c.array(), *c.result<float>(), kFactors[variant],
      c.result<OverflowReport>(), c.machine);
}

void norm_of_lists(SeededCall& c, std::size_t variant) {
  auto* const norm = c.result<double>();
  *norm = foreach_norm(c.array(), kFactors[variant], c.result<float>(),
                       c.result<OverflowReport>(), c.machine);
}

void divided_lists(SeededCall& c, std::size_t variant) {
  const float divisor = variant == 0 ? 3 : kFactors[variant - 1];
  const Tensors in = c.array(), sum = c.float32();
  foreach_cast_(c.float32(), in, divisor, c.machine);
  c.next_call();
  foreach_accumulate_(sum, in, divisor, c.machine);
  c.next_call();
  const float weight = std::fabs(divisor) > 1e30f ? 0.3f : divisor;
  foreach_lerp_(sum, in, weight, c.machine);
  c.next_call();
  foreach_lerp_(c.array(), in, weight / 7, c.machine);
}

// The first step has no buffer to read.
void sgd_options(SeededCall& c, std::size_t variant) {
  SgdStep step;
  step.lr = 0.1;
  step.momentum = variant < 2 ? 0 : 0.9;
  step.dampening = variant == 3 ? 0.3 : 0;
  step.weight_decay = variant % 2 == 0 ? 0.01 : 0;
  step.nesterov = variant > 3;
  step.maximize = variant % 3 == 1;
  step.first = variant == 2 || variant == 5;
  const Tensors gradients = c.array(), params = c.float32(),
                buffers = variant < 2 ? Tensors() : c.float32(),
                model = c.dtype == kFloat32 ? Tensors() : c.array();
  foreach_sgd_(params, gradients, buffers, model, step, {0.3f, 0.7f},
               c.machine);
}

// Two thirds of the classes are other ranks'.
void vocab_parallel(SeededCall& c, std::size_t variant) {
  const std::size_t rows = c.size(cli::kSizeRows),
                    columns = c.size(cli::kSizeColumns);
  const auto* targets = c.made<std::int64_t>(rows, [&](std::size_t i) {
    return i % 5 == 2 ? -100
                      : static_cast<std::int64_t>(i * 7919 % (3 * columns));
  });
  const VocabularyPart part{static_cast<std::int64_t>(columns), 3 * columns};
  CrossEntropyOptions options;
  options.label_smoothing = variant == 0 ? 0 : 0.1;
  const Matrix x = c.matrix();
  float *const losses = c.of_rows(), *const lse = c.of_rows(),
               *const low = c.of_rows(), *const gradients = c.of_rows();
  *c.result<CrossEntropyTotal>() =
      vocab_parallel_cross_entropy(Communicator::alone(), part, x, targets,
                                   losses, lse, low, options, c.machine);
  c.next_call();
  vocab_parallel_cross_entropy_backward(part, x, targets, lse, low, gradients,
                                        c.over(x), options, c.machine);
}

// Steps of amsgrad, and of Adam with less memory.
struct AdamKind {
  bool amsgrad, is_stochastic, has_sums, has_blocks, is_float8;
  ScalarType moments = kBFloat16;
};
constexpr AdamKind kAdamKinds[] = {
    {false, false, false, false, false, kFloat32},
    {true, false, false, false, false, kFloat32},
    {false, true, false, false, false},
    {false, true, false, false, false, kFloat32},
    {false, false, true, false, false},
    {false, false, true, false, false, kFloat32},
    {false, false, false, true, false},
    {false, true, false, true, false},
    {false, false, true, true, false},
    {false, false, false, true, true},
    {false, true, false, true, true},
    {false, false, true, true, true}};
constexpr std::size_t kFloat8Kinds = 9;  // the first of them
void adam_options(SeededCall& c, std::size_t variant) {
  AdamKind kind = kAdamKinds[variant];
  const bool is_narrow = c.dtype != kFloat32,
             rounds = kind.is_stochastic || kind.has_sums;
  if (!is_narrow && rounds) {  // of float32 only moments can be rounded
    kind.has_sums = false;
    kind.is_stochastic = !kind.has_blocks;
    kind.moments = kBFloat16;
  }
  const Tensors gradients = c.array(),
                params = is_narrow && rounds ? c.array() : c.float32();
  std::vector<std::uint64_t> ids;
  std::vector<BlockMoments> blocks;
  Tensors first, second, largest, sums, model;
  for (const Tensor& one : params) {
    ids.push_back(100 + ids.size());
    if (!kind.has_blocks) continue;
    const auto codes = [&] {
      return static_cast<std::uint8_t*>(c.next(one.count, std::nullopt));
    };
    std::uint8_t *const m = codes(), *const v = codes();
    const std::size_t count = (one.count + kMomentBlock - 1) / kMomentBlock;
    float* const absmax = c.numbers(2 * count);
    for (std::size_t i = 5; i < 2 * count; i += 7) absmax[i] = 0;
    c.is_made(absmax);
    blocks.push_back({m, v, absmax});
  }
  if (!kind.has_blocks) {
    first = c.array(kind.moments), second = c.array(kind.moments);
  }
  if (kind.amsgrad) largest = c.float32();
  if (kind.has_sums) sums = c.array();
  if (is_narrow && !rounds) model = c.array();
  AdamStep step;
  step.step = variant % 3 == 0 ? 100000 : 3;  // no correction, and one
  step.beta1 = variant % 4 == 1 ? 0.3 : 0.9;
  step.weight_decay = 0.1;
  step.decoupled = variant % 2 != 0;
  step.amsgrad = step.maximize = kind.amsgrad;
  step.max_exp_avg_sqs = largest;
  step.stochastic = kind.is_stochastic;
  step.compensations = sums;
  if (kind.has_blocks) step.block_moments = blocks.data();
  step.float8_moments = kind.is_float8;
  step.seed = 42;
  step.ids = ids.data();
  foreach_adam_(params, gradients, first, second, model, step, {0.3f, 0.7f},
                c.machine);
}

struct OptionRow {
  const char* name;
  std::uint32_t sizes;   // as in OperationRow
  std::size_t variants;  // their number is appended to the name
  void (*run)(SeededCall& call, std::size_t variant);
  std::size_t in_full = variants;  // the others have no large matrices
};
constexpr OptionRow kOptionRows[] = {
    {"softmax_masked", cli::kOfMatrix, 2, masked_softmax},
    {"log_softmax", cli::kOfMatrix, 1, log_softmax_rows},
    {"cross_entropy_targets", cli::kOfMatrix, 4, cross_entropy_rows},
    {"vocab_parallel", cli::kOfMatrix, 2, vocab_parallel},
    {"norm_both", cli::kOfMatrix, 4, norm_rows},
    {"residual_add_bias", cli::kOfMatrix, 1, residual_add_bias},
    // How matrices are divided does not depend on the function.
    {"activation", cli::kOfMatrix, 17, activations, 1},
    {"gates_with_gaps", cli::kOfMatrix, 17, gates_with_gaps, 1},
    {"channel_norm", cli::kOfMatrix, 3, channel_rows},
    {"moe_rows", cli::kOfTokens, 2, moe_rows},
    {"moe_choices", cli::kOfChoices, 4, moe_choices, 1},
    {"moe_losses", cli::kOfTokens, 1, moe_losses},
    {"attention_masked", cli::kOfHeads, 7, masked_attention},
    {"quantize_blocks", cli::kOfMatrix, kRuleCount + 4, quantize_matrix},
    {"quantized_values", cli::kOfMatrix, 4, quantized_matrix},
    {"quantize", 0, 7, quantize_list},
    {"product", cli::kOfMatrix, 3, product_rows},
    {"scaled_product", cli::kOfMatrix, 1, scaled_product},
    {"convolution", cli::kOfMatrix, 10, convolutions},
    {"hadamard_transform", cli::kOfMatrix, 1, hadamard_rows},
    {"scaled", 0, std::size(kFactors), scaled_lists, 0},
    {"norm_scaled", 0, std::size(kFactors), norm_of_lists, 0},
    {"divided", 0, std::size(kFactors) + 1, divided_lists, 2},
    {"sgd_options", 0, 6, sgd_options},
    {"adam_options", 0, kFloat8Kinds, adam_options},
    {"adam_float8", 0, std::size(kAdamKinds) - kFloat8Kinds,
     [](SeededCall& c, std::size_t variant) {
       adam_options(c, kFloat8Kinds + variant);
     }},
};

// ---- Sizes

// Empty, odd, small and large tensors, which are divided between slaves.
const std::vector<std::size_t> kCounts = {0,    1, 7, 100,   8191,
                                          8193, 3, 0, 20001, 66};

// Every count of vectors, batches and their tails, and every pattern of 16
// bits.
constexpr std::size_t kPatterns = 65536;
std::vector<std::size_t> make_edge_counts() {
  std::vector<std::size_t> counts(201);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  counts.insert(counts.end(), 3, kPatterns + 13);
  return counts;
}

// The sizes of a row, in the order of SizeOption. Every second is causal if the
// row takes that.
using Values = std::uint64_t[5];
constexpr Values kNone[] = {{}};
constexpr Values kMatrices[] = {  // rows, columns
    {1, 1},     {129, 64}, {301, 17},  {33, 129},  {65, 1000},
    {4, 20000}, {9, 4096}, {41, 9001}, {2, 50257}, {700, 64}};
constexpr Values kHeads[] = {  // columns, batch, heads, queries, keys
    {1, 1, 1, 1, 1},    {64, 2, 2, 130, 130}, {65, 2, 3, 67, 101},
    {16, 1, 2, 90, 33}, {96, 1, 2, 30, 40},   {16, 1, 1, 2100, 1100},
    {16, 1, 2, 33, 90}};
constexpr Values kTokens[] = {  // columns, tokens, experts, choices
    {1, 1, 1, 1},      {17, 50, 3, 1},     {64, 301, 8, 2},
    {1000, 40, 64, 8}, {5000, 9, 5000, 4}, {50257, 3, 3, 3}};
constexpr Values kChoices[] = {  // tokens, experts, choices
    {1, 1, 1},
    {50, 3, 2},
    {8195, 64, 2},
    {100000, 5, 3},
    {1500, 300, 2}};

// Edges of vectors of 4 to 32 elements, of blocks and of pieces of rows.
constexpr Values kEdgeMatrices[] = {
    {3, 1},   {2, 2},   {5, 3},    {9, 7},    {7, 15},   {4, 16},   {9, 17},
    {3, 31},  {2, 32},  {8, 33},   {13, 63},  {2, 64},   {5, 65},   {9, 100},
    {2, 129}, {8, 255}, {3, 1000}, {2, 4095}, {2, 4097}, {2, 16384}};
constexpr Values kEdgeHeads[] = {
    {1, 1, 1, 1, 1},     {3, 1, 2, 5, 7},     {20, 1, 1, 3, 700},
    {16, 1, 2, 70, 33},  {24, 1, 1, 33, 100}, {24, 2, 1, 100, 40},
    {65, 1, 1, 67, 101}, {72, 1, 2, 37, 70},  {128, 1, 1, 37, 70},
    {250, 1, 1, 20, 37}, {64, 1, 1, 64, 96},  {8, 1, 2, 70, 1300}};
constexpr Values kEdgeTokens[] = {{3, 7, 2, 1},     {16, 50, 3, 1},
                                  {33, 5, 7, 2},    {64, 100, 8, 2},
                                  {129, 21, 64, 3}, {1000, 9, 129, 1}};
constexpr Values kEdgeChoices[] = {{5, 2, 1},   {7, 1, 1},     {100, 7, 1},
                                   {33, 64, 2}, {100, 129, 1}, {6, 7, 3}};

// models() returns the dtypes that an operation with --to writes.
std::vector<std::optional<ScalarType>> models(const OperationRow& row,
                                              ScalarType dtype) {
  if (!row.takes_to) return {std::nullopt};
  if (dtype == kFloat32) return {std::nullopt, kFloat16, kBFloat16};
  return {std::nullopt, std::string(row.name) == "cast" ? kFloat32 : dtype};
}

// make_cases() makes those of all rows, or their edges.
std::vector<OperatorCase> make_cases(bool edges, Numbers numbers) {
  std::vector<OperatorCase> all;
  const auto add = [&](const std::string& name, const auto& row,
                       OperatorCase one, bool causal, bool large = true) {
    one.operation = name;
    one.is_edge = edges;
    one.numbers = numbers;
    const auto add_all = [&](const auto& sizes) {
      for (const Values& values : sizes) {
        // Several grains of queries, only once.
        const bool is_long = row.sizes == cli::kOfHeads && values[3] > 1000;
        if (is_long && !causal) continue;
        const std::uint64_t most = large ? ~0ull : edges ? 2000 : 50000;
        if (values[0] * values[1] > most) continue;
        const std::uint64_t* value = values;
        for (int i = 0; i < cli::kSizeCount; ++i) {
          if ((row.sizes >> i & 1u) != 0) one.sizes.of[i] = *value++;
        }
        all.push_back(one);
        one.sizes.causal = causal && !one.sizes.causal;
      }
    };
    if (row.sizes == 0 && !large && !edges) return;
    const auto add_either = [&](const auto& sizes, const auto& at_edges) {
      edges ? add_all(at_edges) : add_all(sizes);
    };
    row.sizes == cli::kOfMatrix    ? add_either(kMatrices, kEdgeMatrices)
    : row.sizes == cli::kOfHeads   ? add_either(kHeads, kEdgeHeads)
    : row.sizes == cli::kOfTokens  ? add_either(kTokens, kEdgeTokens)
    : row.sizes == cli::kOfChoices ? add_either(kChoices, kEdgeChoices)
                                   : add_all(kNone);
  };
  for (const ScalarType dtype : {kFloat16, kBFloat16, kFloat32}) {
    for (const OperationRow& row : cli::operation_rows()) {
      for (const auto& to : models(row, dtype)) {
        add(row.name, row, {{}, row.run, {}, dtype, to}, row.takes_causal);
      }
    }
    for (const OptionRow& row : kOptionRows) {
      for (std::size_t v = 0; v < row.variants; ++v) {
        const auto run = [v, &row](SeededCall& c) { row.run(c, v); };
        add(std::string(row.name) + "_" + std::to_string(v), row,
            {{}, run, {}, dtype, {}}, false, v < row.in_full);
      }
    }
  }
  return all;
}

}  // namespace

const std::vector<OperatorCase>& operator_cases() {
  static const std::vector<OperatorCase> all =
      make_cases(false, Numbers::special_rows);
  return all;
}

const std::vector<OperatorCase>& edge_cases() {
  static const std::vector<OperatorCase> all = [] {
    std::vector<OperatorCase> cases;
    for (const Numbers numbers :
         {Numbers::ordinary, Numbers::special_rows, Numbers::any_bits}) {
      for (OperatorCase& one : make_cases(true, numbers)) {
        cases.push_back(std::move(one));
      }
    }
    return cases;
  }();
  return all;
}

std::vector<const OperatorCase*> one_of_each() {
  std::vector<const OperatorCase*> all;
  std::map<std::string, std::vector<const OperatorCase*>> rows;
  for (const OperatorCase& one : operator_cases()) {
    if (one.is_small()) rows[one.operation].push_back(&one);
  }
  for (const auto& [name, cases] : rows) {
    all.push_back(cases[all.size() % cases.size()]);
  }
  return all;
}

std::string OperatorCase::name() const {
  constexpr const char* kNumbers[] = {"ordinary ", "", "any "};
  std::string text = operation;
  for (const auto& size : sizes.of) {
    if (size) text += " " + std::to_string(*size);
  }
  text += std::string(sizes.causal ? " causal " : " ") +
          kNumbers[static_cast<int>(numbers)] + format_of(dtype).name;
  return to ? text + " to " + format_of(*to).name : text;
}

bool OperatorCase::takes_mixed_lists() const {
  for (const char* name : {"unscale", "check", "norm", "scan", "scaled_"}) {
    if (is_list() && operation.rfind(name, 0) == 0) return true;
  }
  return false;
}

bool OperatorCase::has_special_rows() const {
  for (const char* part : {"softmax", "norm", "cross_entropy", "residual"}) {
    if (operation.find(part) != operation.npos) return true;
  }
  return false;
}

std::size_t OperatorCase::ldm_bytes() const {
  if (has_heads()) return 160 * 1024;
  // Square blocks of 128 x 128 float32 and their codes.
  const bool is_square =
      operation == "quantize_blocks_13" || operation == "quantize_blocks_14";
  return is_square ? 512 * 1024 : 64 * 1024;
}

bool OperatorCase::is_small() const {
  std::uint64_t product = 1;
  for (const auto& size : sizes.of) product *= size.value_or(1);
  return product < 1000000;
}

namespace {

// Any bits, and every pattern in an order of the array's own; numbers, zeros of
// both signs, and one inf; or positive numbers.
void fill_edge(const Format& format, void* data, std::size_t count,
               Numbers numbers, Random& random) {
  if (numbers == Numbers::any_bits) {
    fill_any(format, data, count, random);
    const std::uint64_t step = random.next() | 1;
    for (std::size_t i = 0; count > kPatterns && i < kPatterns; ++i) {
      if (format.bytes > 2) break;
      store_bits(format, data, i, i * step % kPatterns);
    }
    return;
  }
  fill_ordinary(format, data, count, random);
  if (numbers == Numbers::ordinary) {
    for (std::size_t i = 0; i < count; ++i) {
      store_bits(format, data, i, load_bits(format, data, i) & ~format.sign());
    }
    return;
  }
  for (std::size_t i = 0; i < count; i += 1 + random.below(9)) {
    store_bits(format, data, i, random.below(2) * format.sign());
  }
  if (count % 2 != 0) {
    store_bits(format, data, random.below(count), format.infinity());
  }
}

}  // namespace

SeededCall::Array::Array(std::size_t count, std::size_t element_bytes,
                         std::size_t index)
    : pages(std::max<std::size_t>(count * element_bytes, 1)),
      bytes(count * element_bytes) {
  std::memset(pages.begin(), 0xa5, pages.bytes());
  const bool at_end = Random(index).below(2) == 0;
  data = at_end ? pages.end() - bytes : pages.begin();
}

SeededCall::SeededCall(const OperatorCase& one) : one_(one) {
  sizes = one.sizes;
  dtype = one.dtype;
  to = one.to;
}

void SeededCall::run(Machine& on, bool in_place) {
  for (Array& array : arrays_) {
    std::copy(array.first.begin(), array.first.end(), array.data);
    array.replaced_by = nullptr;
    array.before.clear();
  }
  machine = &on;
  in_place_ = in_place;
  next_ = 0;
  one_.run(*this);
  for (const Array& array : arrays_) {
    const auto is_kept = [](std::byte byte) { return byte == std::byte{0xa5}; };
    EXPECT_TRUE(std::all_of(array.pages.begin(), array.data, is_kept) &&
                std::all_of(array.end(), array.pages.end(), is_kept));
  }
}

std::vector<std::vector<std::byte>> SeededCall::results() const {
  std::vector<std::vector<std::byte>> all;
  for (const Array& array : arrays_) {
    const Array& from = array.replaced_by ? *array.replaced_by : array;
    std::vector<std::byte> bytes(from.data, from.end());
    for (const Array& other : arrays_) {
      if (other.replaced_by == &array) bytes = array.first;
    }
    const bool keeps_nan = one_.has_nan_payload() && array.type &&
                           has_nan_payload(format_of(*array.type));
    if (array.type && !keeps_nan) {
      const Format& format = format_of(*array.type);
      for (std::size_t i = 0; i < bytes.size() / format.bytes; ++i) {
        if (format.is_nan(load_bits(format, bytes.data(), i))) {
          store_bits(format, bytes.data(), i, format.quiet_nan());
        }
      }
    }
    all.push_back(std::move(bytes));
  }
  return all;
}

void SeededCall::next_call() {
  for (Array& array : arrays_) array.before.assign(array.data, array.end());
}

bool SeededCall::is_untouched() const {
  return std::all_of(arrays_.begin(), arrays_.end(), [](const Array& array) {
    const auto& before = array.before.empty() ? array.first : array.before;
    return std::equal(before.begin(), before.end(), array.data);
  });
}

template <class Fill>
std::byte* SeededCall::take(std::size_t count, std::size_t element_bytes,
                            Fill fill) {
  if (next_ == arrays_.size()) {
    Array& made = arrays_.emplace_back(count, element_bytes, next_);
    fill(made);
    made.first.assign(made.data, made.end());
  }
  return arrays_[next_++].data;
}

cli::Tensors SeededCall::array(std::optional<ScalarType> type) {
  cli::Tensors tensors;
  static const std::vector<std::size_t> edges = make_edge_counts();
  for (const std::size_t count : one_.is_edge ? edges : kCounts) {
    const std::size_t turn = dtype + tensors.size();
    const ScalarType own =
        type.value_or(one_.takes_mixed_lists()
                          ? kAllFormats[turn % std::size(kAllFormats)]->type
                          : dtype);
    tensors.push_back({next(count * format_of(own).bytes, own), count, own});
  }
  return tensors;
}

void* SeededCall::next(std::size_t bytes, std::optional<ScalarType> type) {
  const std::size_t element = type ? format_of(*type).bytes : 1;
  return take(bytes / element, element, [&](Array& made) {
    made.type = type;
    const std::size_t count = bytes / element;
    Random random(next_ + 1);
    if (!type) {
      std::generate(made.data, made.end(),
                    [&] { return static_cast<std::byte>(random.next()); });
      return;
    }
    const Format& format = format_of(*type);
    if (one_.is_list() && one_.is_edge) {
      return fill_edge(format, made.data, count, one_.numbers, random);
    }
    const auto set = [&](std::size_t i, float value) {
      if (i < count) store_bits(format, made.data, i, bits_of(format, value));
    };
    constexpr float kInf = std::numeric_limits<float>::infinity();
    if (one_.has_heads()) {  // products of a few, so that no key is alone
      for (std::size_t i = 0; i < count; ++i) {
        set(i, static_cast<float>(random.below(4001)) / 1000 - 2);
      }
      // Some rows are large, or have one special number.
      const float specials[] = {kInf, -kInf, std::nanf(""), 8000, 0};
      const std::size_t columns = size(cli::kSizeColumns);
      for (std::size_t i = 0; i + columns <= count; i += columns) {
        if (random.below(16) != 0) continue;
        if (one_.numbers == Numbers::any_bits) {
          set(i + random.below(columns), specials[random.below(5)]);
        } else if (one_.numbers == Numbers::special_rows) {
          for (std::size_t k = i; k < i + columns; ++k) {
            set(k, static_cast<float>(random.below(4001)) / 50 - 40);
          }
        }
      }
      return;
    }
    if (one_.numbers == Numbers::any_bits) {
      return fill_any(format, made.data, count, random);
    }
    fill_ordinary(format, made.data, count, random);
    if (one_.numbers == Numbers::ordinary) return;
    const bool has_inf = one_.is_list() && dtype == kBFloat16 && count > 50;
    if (has_inf) store_bits(format, made.data, 42, format.infinity());
    if (sizes.of[cli::kSizeRows].value_or(300) >= 300) return;
    // Rows with -inf, nan or inf, equal ones and wide ones.
    const std::size_t columns = size(cli::kSizeColumns);
    if (!one_.has_special_rows() || count % columns != 0) return;
    const std::size_t at = columns * 5 / 7;
    for (std::size_t j = 0; j < columns; ++j) {
      if (j < (columns + 1) / 2) set(columns + j, -kInf);
      set(5 * columns + j, -kInf);
      set(6 * columns + j, -1.5f);
    }
    set(2 * columns + at, 80);
    set(3 * columns + at, std::nanf(""));
    set(4 * columns + at, kInf);
  });
}

void* SeededCall::memory(std::size_t bytes) {
  // Of 8-byte elements, because the master writes them.
  return take((bytes + 7) / 8, 8, [](Array& made) {
    made.type = kFloat64;  // whose nan are alike
    std::fill(made.data, made.end(), std::byte{});
  });
}

float* SeededCall::numbers(std::size_t count) {
  return reinterpret_cast<float*>(take(count, 4, [&](Array& made) {
    made.type = kFloat32;
    Random random(next_ + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = 4 + static_cast<float>(random.below(4096)) / 1024;
      std::memcpy(made.data + i * 4, &value, sizeof value);
    }
  }));
}

Matrix SeededCall::over(const Matrix& x) {
  const Matrix out = Call::over(x);
  has_over_ = true;
  if (!in_place_) return out;
  for (const Array& array : arrays_) {
    if (array.data == x.data) arrays_[next_ - 1].replaced_by = &array;
  }
  return x;
}

ExpertChoices SeededCall::experts() {
  ExpertChoices all = Call::experts();
  // The lower experts are chosen more often.
  Random random(5);
  auto* const numbers = static_cast<std::int32_t*>(const_cast<void*>(all.data));
  for (std::size_t i = 0; i < all.count; ++i) {
    const std::uint64_t one =
        std::min(random.below(all.experts), random.below(all.experts));
    numbers[i] = i % 11 == 3 ? -1 : static_cast<std::int32_t>(one);
  }
  is_made(numbers);
  return all;
}

void SeededCall::is_made(void* data) {
  for (Array& array : arrays_) {
    if (array.data == data) array.first.assign(array.data, array.end());
  }
}

const std::uint8_t* SeededCall::random(std::size_t count) {
  return made<std::uint8_t>(count, [](std::size_t i) { return i * 167 % 256; });
}

std::uint8_t* SeededCall::bytes(std::size_t count, std::uint64_t of) {
  Random random(next_ + 1);
  return made<std::uint8_t>(count, [&](std::size_t i) {
    return random.below(of) != 0 ? 1 + i % 255 : 0;
  });
}

}  // namespace swamp::test
