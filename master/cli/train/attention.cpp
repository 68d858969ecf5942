// The layers of attention, forward and backward: norm, queries, keys and
// values, causal attention of three heads, projection, residual connection. The
// attention itself is either products and swamp's softmax, whose matrix of
// probabilities is kept, or swamp's flash attention on arrays of heads.
#include "swamp/attention.h"

#include <algorithm>

#include "master/cli/train/layers.h"

namespace swamp::cli {
namespace {

// kScoreScale is 1 / sqrt(kHeadColumns).
constexpr float kScoreScale = 0.35355339f;
const AttentionOptions kAttentionOptions = {
    kScoreScale, AttentionCausal::top_left, {}};

// part() is one head of all examples in a matrix with a row for each byte, in
// which the kWidth columns of the heads begin at `column`.
Matrices part(Floats& matrix, std::size_t column, std::size_t head) {
  const std::size_t row = matrix.columns;
  return {matrix.data.data() + column + head * kHeadColumns,
          matrix.rows / kContext,
          kContext,
          kHeadColumns,
          kContext * row,
          row};
}

// The parts of queries, keys and values; the first is also that of the mixed
// values.
Matrices queries(Floats& matrix, std::size_t head) {
  return part(matrix, 0, head);
}
Matrices keys(Floats& matrix, std::size_t head) {
  return part(matrix, kWidth, head);
}
Matrices values(Floats& matrix, std::size_t head) {
  return part(matrix, 2 * kWidth, head);
}

// rows_of() is one head of all examples in an array [examples, heads, kContext,
// columns].
Matrices rows_of(Floats& array, std::size_t head) {
  const std::size_t row = array.columns;
  return {array.row(head * kContext),
          array.rows / (kHeads * kContext),
          kContext,
          row,
          kHeads * kContext * row,
          row};
}

void copy(const Matrices& from, const Matrices& to) {
  for (std::size_t i = 0; i < to.batch; ++i) {
    for (std::size_t r = 0; r < to.rows; ++r) {
      std::copy_n(
          static_cast<const float*>(from.data) + i * from.batch_step +
              r * from.row_step,
          to.columns,
          static_cast<float*>(to.data) + i * to.batch_step + r * to.row_step);
    }
  }
}

}  // namespace

void Model::Layers::attention(std::size_t number) {
  const std::size_t first = first_of_layer(number);
  Attention& layer = layers[number];
  const std::size_t rows = stream.floats.rows;
  layer.input = stream;
  layer.normalized.resize(rows, kWidth);
  layer.mean.resize(rows);
  layer.rstd.resize(rows);
  layer_norm(layer.input.matrix(), parameters[first + kNormWeight].vector(),
             parameters[first + kNormBias].vector(), layer.normalized.matrix(),
             layer.mean.data(), layer.rstd.data(), {}, &machine);
  take(layer.normalized);
  linear(layer.normalized.floats, first + kQkv, first + kQkvBias, layer.qkv);
  round(layer.qkv);
  layer.mixed.resize(rows, kWidth);
  options.use_flash_attn ? flash_attention(number) : unfused_attention(number);

  linear(layer.mixed, first + kOut, kNoBias, branch.floats);
  round(branch);
  residual_add_(stream.in_float32(), branch.matrix(),
                parameters[first + kOutBias].vector(), &machine);
  round_stream(stream);
}

// unfused_attention() computes the mixed values from queries, keys and values,
// as flash_attention() does.
void Model::Layers::unfused_attention(std::size_t number) {
  Attention& layer = layers[number];
  const SoftmaxOptions softmax = softmax_options(number);
  layer.probabilities.resize(layer.qkv.rows * kHeads, kContext);
  for (std::size_t head = 0; head < kHeads; ++head) {
    swamp::product(rows_of(layer.probabilities.floats, head),
                   queries(layer.qkv, head), keys(layer.qkv, head).transposed(),
                   {kScoreScale / softmax.scale}, &machine);
  }
  if (layer.probabilities.dtype != kFloat32) round(layer.probabilities);
  const Matrix scores = layer.probabilities.matrix();
  scaled_softmax(scores, scores, softmax, &machine);
  take(layer.probabilities);
  for (std::size_t head = 0; head < kHeads; ++head) {
    swamp::product(queries(layer.mixed, head),
                   rows_of(layer.probabilities.floats, head),
                   values(layer.qkv, head), {}, &machine);
  }
  round(layer.mixed);
}

void Model::Layers::flash_attention(std::size_t number) {
  Attention& layer = layers[number];
  split_heads(layer.qkv, 0, layer.q);
  split_heads(layer.qkv, kWidth, layer.k);
  split_heads(layer.qkv, 2 * kWidth, layer.v);
  layer.out = layer.q;  // for its shape
  layer.lse.resize(layer.q.matrix().rows);
  swamp::attention(layer.q.heads(), layer.k.heads(), layer.v.heads(),
                   layer.out.heads(), layer.lse.data(), kAttentionOptions,
                   &machine);
  merge_heads(layer.out, 0, layer.mixed);
}

void Model::Layers::split_heads(Floats& matrix, std::size_t column,
                                HeadArray& array) {
  array.dtype = options.dtype;
  array.resize(matrix.rows * kHeads, kHeadColumns);
  for (std::size_t head = 0; head < kHeads; ++head) {
    copy(part(matrix, column, head), rows_of(array.floats, head));
  }
  round(array);  // sets the bits, and changes no value
}

void Model::Layers::merge_heads(HeadArray& array, std::size_t column,
                                Floats& matrix) {
  widen(array);
  for (std::size_t head = 0; head < kHeads; ++head) {
    copy(rows_of(array.floats, head), part(matrix, column, head));
  }
}

void Model::Layers::attention_backward(std::size_t number) {
  const std::size_t first = first_of_layer(number);
  Attention& layer = layers[number];
  branch_gradient = stream_gradient.floats;
  if (stream_gradient.dtype == kFloat32) round_gradient(branch_gradient);
  linear_backward(layer.mixed, branch_gradient, first + kOut, first + kOutBias,
                  mixed_gradient);
  round_gradient(mixed_gradient);

  qkv_gradient.resize(layer.qkv.rows, layer.qkv.columns);
  options.use_flash_attn ? flash_attention_backward(number)
                         : unfused_attention_backward(number);
  linear_backward(layer.normalized.floats, qkv_gradient, first + kQkv,
                  first + kQkvBias, normalized_gradient.floats);
  round_gradient(normalized_gradient);
  const Matrix gradient = normalized_gradient.matrix();
  layer_norm_backward(
      gradient, layer.input.matrix(), layer.mean.data(), layer.rstd.data(),
      parameters[first + kNormWeight].vector(), gradient,
      parameters[first + kNormWeight].gradient.floats.data.data(),
      parameters[first + kNormBias].gradient.floats.data.data(), {}, &machine);
  residual_add_(stream_gradient.in_float32(), gradient, {}, &machine);
  if (stream_gradient.dtype != kFloat32) round_gradient(stream_gradient);
}

// unfused_attention_backward() goes from the gradient of the mixed values to
// those of queries, keys and values.
void Model::Layers::unfused_attention_backward(std::size_t number) {
  Attention& layer = layers[number];
  const SoftmaxOptions softmax = softmax_options(number);
  Floats& scores = score_gradient.floats;
  score_gradient.resize(layer.qkv.rows * kHeads, kContext);
  for (std::size_t head = 0; head < kHeads; ++head) {
    const Matrices mixed = queries(mixed_gradient, head);
    swamp::product(rows_of(scores, head), mixed,
                   values(layer.qkv, head).transposed(), {}, &machine);
    swamp::product(values(qkv_gradient, head),
                   rows_of(layer.probabilities.floats, head).transposed(),
                   mixed, {}, &machine);
  }
  for (std::size_t r = 0; r < scores.rows; ++r) {  // causal
    std::fill(scores.row(r) + r % kContext + 1, scores.row(r) + kContext, 0.0f);
  }
  round_gradient(score_gradient);
  const Matrix gradient = score_gradient.matrix();
  scaled_softmax_backward(gradient, layer.probabilities.matrix(), gradient,
                          softmax, &machine);
  widen(score_gradient);
  const ProductOptions scaled = {kScoreScale / softmax.scale};
  for (std::size_t head = 0; head < kHeads; ++head) {
    const Matrices gradients = rows_of(scores, head);
    swamp::product(queries(qkv_gradient, head), gradients,
                   keys(layer.qkv, head), scaled, &machine);
    swamp::product(keys(qkv_gradient, head), gradients.transposed(),
                   queries(layer.qkv, head), scaled, &machine);
  }
  round_gradient(qkv_gradient);
}

void Model::Layers::flash_attention_backward(std::size_t number) {
  Attention& layer = layers[number];
  split_heads(mixed_gradient, 0, out_gradient);
  q_gradient = k_gradient = v_gradient = out_gradient;  // for their shapes
  swamp::attention_backward(
      out_gradient.heads(), layer.q.heads(), layer.k.heads(), layer.v.heads(),
      layer.out.heads(), layer.lse.data(), q_gradient.heads(),
      k_gradient.heads(), v_gradient.heads(), kAttentionOptions, &machine);
  merge_heads(q_gradient, 0, qkv_gradient);
  merge_heads(k_gradient, kWidth, qkv_gradient);
  merge_heads(v_gradient, 2 * kWidth, qkv_gradient);
}

}  // namespace swamp::cli
