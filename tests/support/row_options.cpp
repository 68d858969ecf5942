// Options of the operators of rows: softmax, cross entropy, norms, activations,
// mixtures of experts, attention.
#include <cmath>
#include <cstring>
#include <utility>

#include "support/operators.h"
#include "swamp/activation.h"
#include "swamp/attention.h"
#include "swamp/channel_norm.h"
#include "swamp/communicator.h"
#include "swamp/float_formats.h"
#include "swamp/moe.h"
#include "swamp/pointwise.h"
#include "swamp/rows.h"

namespace swamp::test {
namespace {

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

// One in five targets is ignored. The last two variants compute a part of the
// classes: two thirds are other ranks'.
void cross_entropy_rows(SeededCall& c, std::size_t variant) {
  const std::size_t rows = c.size(cli::kSizeRows),
                    columns = c.size(cli::kSizeColumns);
  const bool is_part = variant >= 4;
  const VocabularyPart part{static_cast<std::int64_t>(columns), 3 * columns};
  const std::size_t classes = is_part ? part.classes : columns;
  const auto* targets = c.made<std::int64_t>(rows, [&](std::size_t i) {
    return i % 5 == 2 ? -100 : static_cast<std::int64_t>(i * 7919 % classes);
  });
  CrossEntropyOptions options;
  options.label_smoothing = variant % 2 != 0 ? 0.1 : 0;
  options.z_loss = variant == 2 || variant == 3 ? 1e-2 : 0;
  if (options.z_loss != 0) options.class_weights = c.of_columns();
  const Matrix x = c.matrix();
  float *const losses = c.of_rows(), *const lse = c.of_rows(),
               *const low = c.of_rows(), *const gradients = c.of_rows();
  auto* const total = c.result<CrossEntropyTotal>();
  if (is_part) {
    *total =
        vocab_parallel_cross_entropy(Communicator::alone(), part, x, targets,
                                     losses, lse, low, options, c.machine);
    c.next_call();
    vocab_parallel_cross_entropy_backward(part, x, targets, lse, low, gradients,
                                          c.over(x), options, c.machine);
    return;
  }
  *total = cross_entropy(x, targets, losses, lse, low, options, c.machine);
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

// The second operand is a matrix, in place, then a row, then a number for each
// row.
void pointwise_functions(SeededCall& c, std::size_t variant) {
  PointwiseOptions options{static_cast<Pointwise>(variant), -0.5f, 0.75f,
                           0.625f};
  const ScalarType type = c.dtype == kFloat32 ? kFloat16 : c.dtype;
  const std::size_t rows = c.size(cli::kSizeRows),
                    columns = c.size(cli::kSizeColumns);
  const Matrix x = c.matrix(rows, columns, type),
               z = c.matrix(rows, columns, type);
  if (options.function < Pointwise::sum) {
    pointwise(x, c.over(x), options, c.machine);
    return;
  }
  if (options.function >= Pointwise::sum_of_product) {
    options.matrix = z.data;
    options.third = c.matrix(rows, columns, type).data;
    pointwise(x, c.over(z), options, c.machine);
    return;
  }
  options.row = z.data;
  pointwise(x, c.matrix(rows, columns, type), options, c.machine);
  c.next_call();
  options.row = nullptr;
  options.values = c.numbers(x.rows);
  pointwise(x, c.matrix(rows, columns, type), options, c.machine);
  c.next_call();
  options.row = z.data;
  pointwise({nullptr, rows, columns, type}, c.matrix(rows, columns, type),
            options, c.machine);
  c.next_call();
  options.row = nullptr;
  options.values = nullptr;
  options.matrix = z.data;
  pointwise(x, c.over(z), options, c.machine);
}

// Sums and extremes of rows, and sums of columns.
void sums_of_rows(SeededCall& c, const Matrix& x, const Matrix& gradient) {
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
  const float limit = 0.75f;
  sum(all, {x.rows, x.columns, 1}, c.result<double>(x.rows), c.machine,
      gradient.data, &limit);
  c.next_call();
  if (x.dtype == kFloat32) return;
  sum(all, {x.rows, x.columns, 1}, c.result<double>(x.rows), c.machine, nullptr,
      nullptr, true);
  c.next_call();
  sum(all, {x.rows, x.columns, 1}, c.result<double>(x.rows), c.machine,
      gradient.data, &limit, true);
  c.next_call();
  for (const bool is_smallest : {false, true}) {
    row_extremes(x, is_smallest, c.result<double>(x.rows), c.machine);
    c.next_call();
  }
}

// BatchNorm of channels that are last; BatchNorm, with sums; GroupNorm with two
// groups or as many as channels.
void channel_rows(SeededCall& c, std::size_t variant) {
  Matrix x = c.matrix(), gradient = c.matrix();
  const bool is_last = variant == 0;
  if (is_last) {  // the positions of a channel must fit into LDM
    for (Matrix* const matrix : {&x, &gradient}) {
      std::swap(matrix->rows, matrix->columns);
    }
  }
  if (variant == 1) sums_of_rows(c, x, gradient);
  ChannelShape shape{x.rows % 3 == 0 ? x.rows / 3 : x.rows, 0};
  if (variant == 2) shape.groups = shape.channels % 2 == 0 ? 2 : 1;
  if (variant == 3) shape.groups = shape.channels;
  shape.channels_last = is_last;
  const std::size_t count = shape.statistics(x.rows);
  float *const mean = c.numbers(count), *const variance = c.numbers(count),
               *const rstd = c.numbers(count),
               *const weight = c.numbers(shape.channels),
               *const dweight = c.numbers(shape.channels),
               *const dbias = c.numbers(shape.channels);
  channel_statistics(x, shape, 1e-5, mean, variance, rstd, c.machine);
  c.next_call();
  channel_norm_backward(gradient, x, shape, mean, rstd, weight, variant == 3,
                        c.over(gradient), dweight, dbias, c.machine);
  c.next_call();
  channel_norm(x, shape, mean, rstd, weight, variant == 1 ? nullptr : weight,
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
  c.next_call();
  moe_add(x, token_of, permuted, sum, c.machine);
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

}  // namespace

std::vector<OptionRow> row_options() {
  return {
      {"softmax_masked", cli::kOfMatrix, 2, masked_softmax},
      {"log_softmax", cli::kOfMatrix, 1, log_softmax_rows},
      {"cross_entropy_targets", cli::kOfMatrix, 6, cross_entropy_rows},
      {"norm_both", cli::kOfMatrix, 4, norm_rows},
      {"residual_add_bias", cli::kOfMatrix, 1, residual_add_bias},
      // How matrices are divided does not depend on the function.
      {"activation", cli::kOfMatrix, 17, activations, 1},
      {"gates_with_gaps", cli::kOfMatrix, 17, gates_with_gaps, 1},
      {"pointwise", cli::kOfMatrix, 20, pointwise_functions, 1},
      // Groups of channels have no large cases.
      {"channel_norm", cli::kOfMatrix, 4, channel_rows, 2},
      {"moe_rows", cli::kOfTokens, 2, moe_rows},
      {"moe_choices", cli::kOfChoices, 4, moe_choices, 1},
      {"moe_losses", cli::kOfTokens, 1, moe_losses},
      {"attention_masked", cli::kOfHeads, 7, masked_attention},
  };
}

}  // namespace swamp::test
