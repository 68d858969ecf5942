// A small causal language model on bytes: embedding, two layers of attention
// with residual connections, a hidden layer, and their gradients, written out
// by hand. Products are in product.h, whose bits are fixed; softmax, norms,
// cross entropy, attention and casts are swamp's operators. Values holds a
// matrix in float32 for the products and in the model's dtype for the
// operators.
#include "master/cli/train/model.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "master/cli/train/product.h"
#include "swamp/attention.h"
#include "swamp/foreach.h"
#include "swamp/rows.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kBytes = 256;   // the vocabulary
constexpr std::size_t kColumns = 24;  // of the residual stream
constexpr std::size_t kHeads = 3;
constexpr std::size_t kHeadColumns = kColumns / kHeads;
constexpr std::size_t kLayers = 2;
constexpr std::size_t kInput = kContext * kColumns;
constexpr std::size_t kHidden = 512;

// A row for each parameter: its first values are uniform, at most `limit` from
// `center`. Their variance is 2 / inputs (He) before the ReLU, 1 / inputs
// before other layers, and less before residual connections and the loss, so
// that training starts near the uniform guess.
struct ParameterRow {
  const char* name;
  std::size_t rows;
  std::size_t columns;
  float limit;
  float center;
};

constexpr ParameterRow kParameters[] = {
    {"embedding", kBytes, kColumns, 1.7f, 0.0f},  // sqrt(3)
    {"position", kContext, kColumns, 0.1f, 0.0f},
    {"norm1.weight", 1, kColumns, 0.0f, 1.0f},
    {"norm1.bias", 1, kColumns, 0.0f, 0.0f},
    {"qkv1.weight", kColumns, 3 * kColumns, 0.35f, 0.0f},  // sqrt(3 / 24)
    {"qkv1.bias", 1, 3 * kColumns, 0.0f, 0.0f},
    {"out1.weight", kColumns, kColumns, 0.1f, 0.0f},
    {"out1.bias", 1, kColumns, 0.0f, 0.0f},
    {"norm2.weight", 1, kColumns, 0.0f, 1.0f},
    {"norm2.bias", 1, kColumns, 0.0f, 0.0f},
    {"qkv2.weight", kColumns, 3 * kColumns, 0.35f, 0.0f},
    {"qkv2.bias", 1, 3 * kColumns, 0.0f, 0.0f},
    {"out2.weight", kColumns, kColumns, 0.1f, 0.0f},
    {"out2.bias", 1, kColumns, 0.0f, 0.0f},
    {"w1", kInput, kHidden, 0.125f, 0.0f},  // sqrt(6 / 384)
    {"b1", 1, kHidden, 0.0f, 0.0f},
    {"w2", kHidden, kBytes, 0.0442f, 0.0f},  // sqrt(1 / 512)
    {"b2", 1, kBytes, 0.0f, 0.0f},
};

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
static_assert(std::size(kParameters) == kParameterCount);

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

  operator Factor() const { return {data.data(), rows, columns, columns, 1}; }
  operator Place() { return {data.data(), rows, columns, columns}; }
};

using Bits = std::vector<std::uint16_t>;

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
  Place keys(Floats& matrix) const { return part(matrix, kColumns); }
  Place values(Floats& matrix) const { return part(matrix, 2 * kColumns); }
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

MachineConfig serial_config() {
  MachineConfig config;
  config.backend = "serial";
  return config;
}

std::uint64_t zeros(const Floats& matrix) {
  return static_cast<std::uint64_t>(
      std::count(matrix.data.begin(), matrix.data.end(), 0.0f));
}

// add_to_rows() adds a row to every row of a matrix.
void add_to_rows(const Floats& row, Floats& matrix) {
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    float* const sum = matrix.row(r);
    for (std::size_t c = 0; c < matrix.columns; ++c) sum[c] += row.data[c];
  }
}

// sum_rows() adds the rows in their order.
void sum_rows(const Floats& matrix, Floats& out) {
  out.resize(1, matrix.columns);
  std::fill(out.data.begin(), out.data.end(), 0.0f);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    const float* const row = matrix.row(r);
    for (std::size_t c = 0; c < matrix.columns; ++c) out.data[c] += row[c];
  }
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
  Matrix in_float32() {
    return {floats.data.data(), floats.rows, floats.columns, kFloat32};
  }
};

Tensor tensor_of(Floats& floats) {
  return {floats.data.data(), floats.data.size(), kFloat32};
}

Floats& floats_of(Floats& floats) { return floats; }
Floats& floats_of(Values& values) { return values.floats; }

Tensor tensor_of(const Matrix& matrix) {
  return {matrix.data, matrix.rows * matrix.columns, matrix.dtype};
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

}  // namespace

void sample_batch(const std::string& text, std::size_t count, Random& random,
                  Batch& batch) {
  batch.contexts.resize(count * kContext);
  batch.targets.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t start = random.below(text.size() - kContext);
    std::memcpy(&batch.contexts[i * kContext], &text[start], kContext);
    batch.targets[i] = static_cast<std::uint8_t>(text[start + kContext]);
  }
}

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
  void product(const Factor& left, const Factor& right, Floats& out) const {
    out.resize(left.rows, right.columns);
    part_product(left, right, out);
  }
  void linear(const Floats& in, std::size_t weight, std::size_t bias,
              Floats& out);
  void linear_gradients(const Floats& in, const Floats& gradient,
                        std::size_t weight, std::size_t bias);
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
  // split_heads() copies kColumns columns of a matrix, from `column` on, whose
  // values are of the dtype of the model; merge_heads() copies them back.
  void split_heads(Floats& matrix, std::size_t column, HeadArray& array);
  void merge_heads(HeadArray& array, std::size_t column, Floats& matrix);
  // softmax_options() are those of a layer, counted from 0.
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
  const Product part_product;  // for shapes that are set already
  Parameter parameters[kParameterCount];
  Attention layers[kLayers];
  std::uint64_t underflow = 0;
  std::uint64_t activation_underflow = 0;
  // Roundings are small: on a busy computer a spawn costs more than it saves.
  Machine serial_machine{serial_config()};
  Bits unused_bits;
  std::vector<std::int64_t> targets;
  std::vector<float> losses;
  std::vector<float> lse;
  std::vector<float> loss_gradients;
  Values stream;  // the residual stream: kColumns for each byte of the context
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

Model::Layers::Layers(const ModelOptions& chosen, Random& random,
                      Machine& machine_used)
    : options(chosen),
      machine(machine_used),
      part_product(machine_used.info().chosen.isa) {
  for (std::size_t i = 0; i < kParameterCount; ++i) {
    const ParameterRow& row = kParameters[i];
    for (Values* values : {&parameters[i].weight, &parameters[i].gradient}) {
      values->dtype = options.dtype;
      values->resize(row.rows, row.columns);
    }
    for (float& weight : parameters[i].weight.floats.data) {
      weight = row.center + random.between(row.limit);
    }
    round(parameters[i].weight);
  }
  const auto float32_if = [&](bool condition) {
    return condition ? kFloat32 : options.dtype;
  };
  branch.dtype = options.dtype;
  logits.dtype = float32_if(!options.fp16_lm_cross_entropy);
  const ScalarType stream_dtype = float32_if(options.fp32_residual_connection);
  stream.dtype = stream_gradient.dtype = stream_dtype;
  normalized_gradient.dtype = stream_dtype;
  score_gradient.dtype = float32_if(options.attention_softmax_in_fp32 &&
                                    !options.query_key_layer_scaling);
  for (Attention& layer : layers) {
    layer.input.dtype = layer.normalized.dtype = stream_dtype;
    layer.probabilities.dtype = score_gradient.dtype;
  }
}

void Model::Layers::round(Floats& floats, Bits& bits) {
  if (options.dtype == kFloat32) return;
  bits.resize(floats.data.size());
  const Tensor rounded{bits.data(), bits.size(), options.dtype};
  foreach_cast_(rounded, tensor_of(floats), 1, &serial_machine);
  foreach_cast_(tensor_of(floats), rounded, 1, &serial_machine);
}

void Model::Layers::narrow_parameter_gradients() {
  if (options.dtype == kFloat32) return;
  std::vector<Tensor> floats;
  std::vector<Tensor> bits;
  for (Parameter& parameter : parameters) {
    floats.push_back(tensor_of(parameter.gradient.floats));
    bits.push_back(tensor_of(parameter.gradient.matrix()));
  }
  foreach_cast_(bits, floats, 1, &serial_machine);
  underflow = foreach_count_zeros(bits, &serial_machine) -
              foreach_count_zeros(floats, &serial_machine);
}

void Model::Layers::widen(Values& values) {
  if (values.dtype == kFloat32) return;
  foreach_cast_(tensor_of(values.floats), tensor_of(values.matrix()), 1,
                &serial_machine);
}

Model::Model(const ModelOptions& options, Random& random, Machine& machine)
    : layers_(std::make_unique<Layers>(options, random, machine)) {}

Model::~Model() = default;

std::vector<ModelParameter> Model::tensors() {
  std::vector<ModelParameter> tensors;
  for (std::size_t i = 0; i < kParameterCount; ++i) {
    Parameter& parameter = layers_->parameters[i];
    tensors.push_back({kParameters[i].name,
                       tensor_of(parameter.weight.matrix()),
                       tensor_of(parameter.gradient.matrix())});
  }
  return tensors;
}

void Model::widen_weights() {
  if (layers_->options.dtype == kFloat32) return;
  std::vector<Tensor> floats;
  std::vector<Tensor> bits;
  for (Parameter& parameter : layers_->parameters) {
    floats.push_back(tensor_of(parameter.weight.floats));
    bits.push_back(tensor_of(parameter.weight.matrix()));
  }
  foreach_cast_(floats, bits, 1, &layers_->serial_machine);
}

std::vector<const char*> Model::parameter_names() const {
  std::vector<const char*> names;
  for (const ParameterRow& row : kParameters) names.push_back(row.name);
  return names;
}

std::uint64_t Model::parameter_count() const noexcept {
  std::uint64_t count = 0;
  for (const ParameterRow& row : kParameters) count += row.rows * row.columns;
  return count;
}

std::uint64_t Model::underflow() const noexcept { return layers_->underflow; }

std::uint64_t Model::activation_underflow() const noexcept {
  return layers_->activation_underflow;
}

double Model::loss_and_gradients(const Batch& batch, float scale) {
  Layers& layers = *layers_;
  layers.underflow = 0;
  layers.activation_underflow = 0;
  layers.forward(batch);
  const double loss = layers.loss(batch, scale);
  layers.backward(batch);
  layers.narrow_parameter_gradients();
  return loss;
}

void Model::Layers::forward(const Batch& batch) {
  stream.resize(batch.contexts.size(), kColumns);
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* byte =
        parameters[kEmbedding].weight.floats.row(batch.contexts[i]);
    const float* place = parameters[kPosition].weight.floats.row(i % kContext);
    float* sum = stream.floats.row(i);
    for (std::size_t j = 0; j < kColumns; ++j) sum[j] = byte[j] + place[j];
  }
  round_stream(stream);
  for (std::size_t number = 0; number < kLayers; ++number) attention(number);
  round(stream.floats);
  stream.floats.set_columns(kInput);
  linear(stream.floats, kW1, kB1, hidden);
  for (float& value : hidden.data) value = value < 0.0f ? 0.0f : value;
  linear(hidden, kW2, kB2, logits.floats);
  if (logits.dtype != kFloat32) round(logits);
}

void Model::Layers::attention(std::size_t number) {
  const std::size_t first = first_of_layer(number);
  Attention& layer = layers[number];
  const std::size_t rows = stream.floats.rows;
  layer.input = stream;
  layer.normalized.resize(rows, kColumns);
  layer.mean.resize(rows);
  layer.rstd.resize(rows);
  layer_norm(layer.input.matrix(), parameters[first + kNormWeight].vector(),
             parameters[first + kNormBias].vector(), layer.normalized.matrix(),
             layer.mean.data(), layer.rstd.data(), {}, &machine);
  take(layer.normalized);
  linear(layer.normalized.floats, first + kQkv, first + kQkvBias, layer.qkv);
  layer.mixed.resize(rows, kColumns);
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
  split_heads(layer.qkv, kColumns, layer.k);
  split_heads(layer.qkv, 2 * kColumns, layer.v);
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

double Model::Layers::loss(const Batch& batch, float scale) {
  const std::size_t rows = batch.targets.size();
  targets.assign(batch.targets.begin(), batch.targets.end());
  losses.resize(rows);
  lse.resize(rows);
  loss_gradients.assign(rows, scale / static_cast<float>(rows));
  const Matrix matrix = logits.matrix();
  const CrossEntropyTotal total = cross_entropy(
      matrix, targets.data(), losses.data(), lse.data(), {}, &machine);
  cross_entropy_backward(matrix, targets.data(), lse.data(),
                         loss_gradients.data(), matrix, {}, &machine);
  if (logits.dtype == kFloat32) {
    round_gradient(logits);
  } else {
    widen(logits);
    activation_underflow += zeros(logits.floats);
  }
  return total.loss / static_cast<double>(rows);
}

void Model::Layers::backward(const Batch& batch) {
  linear_gradients(hidden, logits.floats, kW2, kB2);
  product(logits.floats, transposed(parameters[kW2].weight.floats),
          hidden_gradient);
  for (std::size_t i = 0; i < hidden.data.size(); ++i) {
    if (hidden.data[i] == 0.0f) hidden_gradient.data[i] = 0.0f;
  }
  round_gradient(hidden_gradient);

  linear_gradients(stream.floats, hidden_gradient, kW1, kB1);
  product(hidden_gradient, transposed(parameters[kW1].weight.floats),
          stream_gradient.floats);
  round_gradient(stream_gradient);
  stream_gradient.floats.set_columns(kColumns);
  for (std::size_t number = kLayers; number-- > 0;) attention_backward(number);
  embedding_backward(batch);
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
  merge_heads(k_gradient, kColumns, qkv_gradient);
  merge_heads(v_gradient, 2 * kColumns, qkv_gradient);
}

void Model::Layers::embedding_backward(const Batch& batch) {
  Floats& bytes = parameters[kEmbedding].gradient.floats;
  Floats& places = parameters[kPosition].gradient.floats;
  std::fill(bytes.data.begin(), bytes.data.end(), 0.0f);
  std::fill(places.data.begin(), places.data.end(), 0.0f);
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* from = stream_gradient.floats.row(i);
    float* byte = bytes.row(batch.contexts[i]);
    float* place = places.row(i % kContext);
    for (std::size_t j = 0; j < kColumns; ++j) {
      byte[j] += from[j];
      place[j] += from[j];
    }
  }
}

void Model::Layers::linear(const Floats& in, std::size_t weight,
                           std::size_t bias, Floats& out) {
  product(in, parameters[weight].weight.floats, out);
  add_to_rows(parameters[bias].weight.floats, out);
  round(out);
}

void Model::Layers::linear_gradients(const Floats& in, const Floats& gradient,
                                     std::size_t weight, std::size_t bias) {
  product(transposed(in), gradient, parameters[weight].gradient.floats);
  sum_rows(gradient, parameters[bias].gradient.floats);
}

}  // namespace swamp::cli
