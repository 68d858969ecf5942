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

// Head is one head of one example.
struct Head {
  std::size_t example;
  std::size_t head;

  // queries() is also the head's part of the mixed values.
  Place queries(Floats& matrix) const { return part(matrix, 0); }
  Place keys(Floats& matrix) const { return part(matrix, kWidth); }
  Place values(Floats& matrix) const { return part(matrix, 2 * kWidth); }
  // rows() is the head in an array [examples, heads, kContext, columns].
  Place rows(Floats& array) const {
    return {array.row((example * kHeads + head) * kContext), kContext,
            array.columns, array.columns};
  }
  Place part(Floats& matrix, std::size_t column) const {
    return {matrix.row(example * kContext) + column + head * kHeadColumns,
            kContext, kHeadColumns, matrix.columns};
  }
};

// heads_of() returns the heads of all examples of a batch of `rows` bytes.
std::vector<Head> heads_of(std::size_t rows) {
  std::vector<Head> heads;
  for (std::size_t example = 0; example < rows / kContext; ++example) {
    for (std::size_t head = 0; head < kHeads; ++head) {
      heads.push_back({example, head});
    }
  }
  return heads;
}

void copy(const Place& from, const Place& to) {
  for (std::size_t r = 0; r < to.rows; ++r) {
    std::copy_n(from.data + r * from.row_step, to.columns,
                to.data + r * to.row_step);
  }
}

void multiply(const Place& place, float factor) {
  for (std::size_t r = 0; r < place.rows; ++r) {
    float* const row = place.data + r * place.row_step;
    for (std::size_t c = 0; c < place.columns; ++c) row[c] *= factor;
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
  layer.mixed.resize(rows, kWidth);
  options.use_flash_attn ? flash_attention(number) : unfused_attention(number);

  product(layer.mixed, parameters[first + kOut].weight.floats, branch.floats);
  round(branch);
  residual_add_(stream.in_float32(), branch.matrix(),
                parameters[first + kOutBias].vector(), &machine);
  round_stream(stream);
}

// unfused_attention() computes the mixed values from queries, keys and values,
// as flash_attention() does.
void Model::Layers::unfused_attention(std::size_t number) {
  Attention& layer = layers[number];
  const std::size_t rows = layer.qkv.rows;
  const SoftmaxOptions softmax = softmax_options(number);
  layer.probabilities.resize(rows * kHeads, kContext);
  for (const Head head : heads_of(rows)) {
    const Place scores = head.rows(layer.probabilities.floats);
    product_of_8(head.queries(layer.qkv), transposed(head.keys(layer.qkv)),
                 scores);
    multiply(scores, kScoreScale / softmax.scale);
  }
  if (layer.probabilities.dtype != kFloat32) round(layer.probabilities);
  const Matrix scores = layer.probabilities.matrix();
  scaled_softmax(scores, scores, softmax, &machine);
  take(layer.probabilities);
  for (const Head head : heads_of(rows)) {
    part_product(head.rows(layer.probabilities.floats), head.values(layer.qkv),
                 head.queries(layer.mixed));
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
  const std::size_t rows = matrix.rows;
  array.dtype = options.dtype;
  array.resize(rows * kHeads, kHeadColumns);
  for (const Head head : heads_of(rows)) {
    copy(head.part(matrix, column), head.rows(array.floats));
  }
  round(array);  // sets the bits, and changes no value
}

void Model::Layers::merge_heads(HeadArray& array, std::size_t column,
                                Floats& matrix) {
  widen(array);
  for (const Head head : heads_of(matrix.rows)) {
    copy(head.rows(array.floats), head.part(matrix, column));
  }
}

void Model::Layers::attention_backward(std::size_t number) {
  const std::size_t first = first_of_layer(number);
  Attention& layer = layers[number];
  branch_gradient = stream_gradient.floats;
  if (stream_gradient.dtype == kFloat32) round_gradient(branch_gradient);
  linear_gradients(layer.mixed, branch_gradient, first + kOut,
                   first + kOutBias);
  product(branch_gradient, transposed(parameters[first + kOut].weight.floats),
          mixed_gradient);
  round_gradient(mixed_gradient);

  qkv_gradient.resize(layer.qkv.rows, layer.qkv.columns);
  options.use_flash_attn ? flash_attention_backward(number)
                         : unfused_attention_backward(number);
  linear_gradients(layer.normalized.floats, qkv_gradient, first + kQkv,
                   first + kQkvBias);
  product(qkv_gradient, transposed(parameters[first + kQkv].weight.floats),
          normalized_gradient.floats);
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
  const std::size_t rows = layer.qkv.rows;
  score_gradient.resize(rows * kHeads, kContext);
  for (const Head head : heads_of(rows)) {
    const Place mixed = head.queries(mixed_gradient);
    const Place scores = head.rows(score_gradient.floats);
    product_of_8(mixed, transposed(head.values(layer.qkv)), scores);
    for (std::size_t r = 0; r < kContext; ++r) {  // causal
      float* const row = scores.data + r * scores.row_step;
      std::fill(row + r + 1, row + kContext, 0.0f);
    }
    product_of_16(transposed(head.rows(layer.probabilities.floats)), mixed,
                  head.values(qkv_gradient));
  }
  round_gradient(score_gradient);
  const Matrix gradient = score_gradient.matrix();
  scaled_softmax_backward(gradient, layer.probabilities.matrix(), gradient,
                          softmax, &machine);
  widen(score_gradient);
  const float scale = kScoreScale / softmax.scale;
  for (const Head head : heads_of(rows)) {
    const Place scores = head.rows(score_gradient.floats);
    product_of_16(scores, head.keys(layer.qkv), head.queries(qkv_gradient));
    multiply(head.queries(qkv_gradient), scale);
    product_of_16(transposed(scores), head.queries(layer.qkv),
                  head.keys(qkv_gradient));
    multiply(head.keys(qkv_gradient), scale);
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
