// The data of the model, for the sources that compute with it: matrices in
// float32 for the products and in the dtype of the model for swamp's operators,
// and the activations and gradients of all layers.
#ifndef SWAMP_MASTER_CLI_TRAIN_LAYERS_H_
#define SWAMP_MASTER_CLI_TRAIN_LAYERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "master/cli/train/float8_linear.h"
#include "master/cli/train/model.h"
#include "swamp/attention.h"
#include "swamp/foreach.h"
#include "swamp/product.h"
#include "swamp/rows.h"

namespace swamp::cli {

constexpr std::size_t kBytes = 256;  // the vocabulary
constexpr std::size_t kWidth = 24;   // of the residual stream
constexpr std::size_t kHeads = 3;
constexpr std::size_t kHeadColumns = kWidth / kHeads;
constexpr std::size_t kLayers = 2;
constexpr std::size_t kInput = kContext * kWidth;
constexpr std::size_t kHidden = 512;

// The places of the parameters in kParameters.
enum : std::size_t { kEmbedding, kPosition, kFirstLayer };
enum : std::size_t {  // after the first of a layer
  kNormWeight,
  kNormBias,
  kQkv,
  kQkvBias,
  kOut,
  kOutBias,
  kLayerParameters
};
enum : std::size_t {
  kW1 = kFirstLayer + kLayers * kLayerParameters,
  kB1,
  kW2,
  kB2,
  kParameterCount
};

constexpr std::size_t kNoBias = kParameterCount;

constexpr std::size_t first_of_layer(std::size_t layer) {
  return kFirstLayer + layer * kLayerParameters;
}

// Floats is a matrix whose rows are consecutive.
struct Floats {
  std::vector<float> data;
  std::size_t rows = 0;
  std::size_t columns = 0;

  // The values are undefined after resize().
  void resize(std::size_t new_rows, std::size_t new_columns) {
    rows = new_rows;
    columns = new_columns;
    data.resize(rows * columns);
  }
  // set_columns() changes the shape, not the values.
  void set_columns(std::size_t new_columns) {
    rows = data.size() / new_columns;
    columns = new_columns;
  }
  float* row(std::size_t index) { return &data[index * columns]; }
  const float* row(std::size_t index) const { return &data[index * columns]; }

  operator Matrices() {
    return Matrices::dense(data.data(), 1, rows, columns, kFloat32);
  }
};

inline Matrix matrix_of(Floats& floats) {
  return {floats.data.data(), floats.rows, floats.columns, kFloat32};
}

using Bits = std::vector<std::uint16_t>;

inline MachineConfig serial_config() {
  MachineConfig config;
  config.backend = "serial";
  return config;
}

// Values is a matrix of a dtype. Products take `floats`. In a 16-bit dtype,
// the same values are in `bits`, for swamp's operators and the optimizer.
struct Values {
  ScalarType dtype = kFloat32;
  Floats floats;
  Bits bits;  // empty in float32

  void resize(std::size_t rows, std::size_t columns) {
    floats.resize(rows, columns);
    if (dtype != kFloat32) bits.resize(rows * columns);
  }
  // matrix() is what operators read and write.
  Matrix matrix() {
    Matrix matrix = in_float32();
    matrix.dtype = dtype;
    if (dtype != kFloat32) matrix.data = bits.data();
    return matrix;
  }
  // in_float32() is the floats, for an operator on float32 only.
  Matrix in_float32() { return matrix_of(floats); }
};

inline Tensor tensor_of(Floats& floats) {
  return {floats.data.data(), floats.data.size(), kFloat32};
}

inline Floats& floats_of(Floats& floats) { return floats; }
inline Floats& floats_of(Values& values) { return values.floats; }

inline Tensor tensor_of(const Matrix& matrix) {
  return {matrix.data, matrix.rows * matrix.columns, matrix.dtype};
}

inline std::uint64_t zeros(const Floats& matrix) {
  return static_cast<std::uint64_t>(
      std::count(matrix.data.begin(), matrix.data.end(), 0.0f));
}

// Parameter has the weights that the optimizer writes and the gradient that it
// reads.
struct Parameter {
  Values weight;
  Values gradient;

  RowVector vector() const { return {weight.floats.data.data(), kFloat32}; }
};

// HeadArray is an array [examples, heads, kContext, kHeadColumns], as flash
// attention reads and writes it.
struct HeadArray : Values {
  Heads heads() {
    const Matrix all = matrix();
    return {all.data,     all.rows / (kHeads * kContext),
            kHeads,       kContext,
            kHeadColumns, dtype};
  }
};

// Attention is what backward needs of a layer of attention.
struct Attention {
  Values input;  // the residual stream
  std::vector<float> mean;
  std::vector<float> rstd;
  Values normalized;
  Floats qkv;            // queries, keys and values of all heads
  Values probabilities;  // and before, the scores: kContext rows for each head
  Floats mixed;          // the values, weighted by the probabilities
  // Of flash attention, which has no matrix of probabilities:
  HeadArray q;
  HeadArray k;
  HeadArray v;
  HeadArray out;
  std::vector<float> lse;
};

struct Model::Layers {
  Layers(const ModelOptions& chosen, Random& random, Machine& machine_used);

  // forward() ends with the logits.
  void forward(const Batch& batch);
  void attention(std::size_t number);
  // loss() replaces the logits by the gradients of scale * loss.
  double loss(const Batch& batch, float scale);
  // backward() begins with the gradients of the logits.
  void backward(const Batch& batch);
  void unfused_attention(std::size_t number);
  void flash_attention(std::size_t number);
  void attention_backward(std::size_t number);
  void unfused_attention_backward(std::size_t number);
  void flash_attention_backward(std::size_t number);
  void embedding_backward(const Batch& batch);

  // product() resizes `out`.
  void product(const Matrices& left, const Matrices& right, Floats& out,
               const Matrices* bias = nullptr) const {
    out.resize(left.rows, right.columns);
    swamp::product(out, left, right, {1, 1, bias}, &machine);
  }
  // linear() resizes `out`, and does not round it; kNoBias: without a bias.
  void linear(Floats& in, std::size_t weight, std::size_t bias, Floats& out);
  // linear_backward() goes from the gradient of the result of linear() to those
  // of its weights, bias and input.
  void linear_backward(Floats& in, Floats& gradient, std::size_t weight,
                       std::size_t bias, Floats& in_gradient);
  // round() rounds to the dtype of the model, to nearest even; a value that is
  // too large becomes inf. Floats hold every 16-bit value exactly.
  void round(Floats& floats, Bits& bits);
  void round(Floats& floats) { round(floats, unused_bits); }
  void round(Values& values) {
    round(values.floats, values.dtype == kFloat32 ? unused_bits : values.bits);
  }
  // round_gradient() counts what becomes 0.
  template <class Gradient>
  void round_gradient(Gradient& gradient) {
    if (options.dtype == kFloat32) return;
    activation_underflow -= zeros(floats_of(gradient));
    round(gradient);
    activation_underflow += zeros(floats_of(gradient));
  }
  void narrow_parameter_gradients();
  // round_stream() leaves a float32 residual stream alone.
  void round_stream(Values& values) {
    if (values.dtype != kFloat32) round(values);
  }
  // widen() sets the floats to the bits that an operator wrote.
  void widen(Values& values);
  // take() rounds what an operator wrote to the dtype of the model.
  void take(Values& values) {
    values.dtype == kFloat32 ? round(values) : widen(values);
  }
  // split_heads() copies kWidth columns of a matrix, from `column` on, whose
  // values are of the dtype of the model; merge_heads() copies them back.
  void split_heads(Floats& matrix, std::size_t column, HeadArray& array);
  void merge_heads(HeadArray& array, std::size_t column, Floats& matrix);
  // Returns the options of a layer, counted from 0.
  SoftmaxOptions softmax_options(std::size_t number) const {
    SoftmaxOptions softmax;
    if (options.query_key_layer_scaling) {
      softmax.scale = static_cast<float>(number + 1);
    }
    softmax.causal_rows = kContext;
    return softmax;
  }

  ModelOptions options;
  Machine& machine;
  Parameter parameters[kParameterCount];
  Attention layers[kLayers];
  std::optional<Float8Linear> float8;
  std::uint64_t underflow = 0;
  std::uint64_t activation_underflow = 0;
  // Roundings are small: on a busy computer a spawn costs more than it saves.
  Machine serial_machine{serial_config()};
  Bits unused_bits;
  std::vector<std::int64_t> targets;
  std::vector<float> losses;
  std::vector<float> lse, lse_low;
  std::vector<float> loss_gradients;
  Values stream;  // the residual stream: kWidth for each byte of the context
  Values branch;  // what a layer adds to it
  Floats hidden;
  Values logits;  // and their gradients
  Floats hidden_gradient;
  Values stream_gradient;
  Floats branch_gradient;
  Floats mixed_gradient;
  Values score_gradient;  // and that of the probabilities
  Floats qkv_gradient;
  HeadArray out_gradient;
  HeadArray q_gradient;
  HeadArray k_gradient;
  HeadArray v_gradient;
  Values normalized_gradient;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_LAYERS_H_
