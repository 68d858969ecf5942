#include "master/cli/train/model.h"

#include <Eigen/Core>
#include <cstring>
#include <iterator>

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

using Floats =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Bits = std::vector<std::uint16_t>;

// kScoreScale is 1 / sqrt(kHeadColumns).
constexpr float kScoreScale = 0.35355339f;
const AttentionOptions kAttentionOptions = {
    kScoreScale, AttentionCausal::top_left, {}};

float* row_of(Floats& matrix, std::size_t row) {
  return matrix.data() + row * static_cast<std::size_t>(matrix.cols());
}

// HeadPart is the part of a matrix that belongs to one head of one example.
template <int columns>
using HeadPart =
    Eigen::Map<Eigen::Matrix<float, kContext, columns, Eigen::RowMajor>, 0,
               Eigen::OuterStride<>>;

// Head is one head of one example.
struct Head {
  std::size_t example;
  std::size_t head;

  // queries() is also the head's part of the mixed values.
  auto queries(Floats& matrix) const { return part(matrix, 0); }
  auto keys(Floats& matrix) const { return part(matrix, kColumns); }
  auto values(Floats& matrix) const { return part(matrix, 2 * kColumns); }
  auto scores(Floats& matrix) const { return rows<kContext>(matrix); }
  // rows() is the head in an array [examples, heads, kContext, columns].
  template <int columns>
  HeadPart<columns> rows(Floats& array) const {
    return HeadPart<columns>(
        row_of(array, (example * kHeads + head) * kContext),
        Eigen::OuterStride<>(columns));
  }
  HeadPart<kHeadColumns> part(Floats& matrix, std::size_t column) const {
    return HeadPart<kHeadColumns>(
        row_of(matrix, example * kContext) + column + head * kHeadColumns,
        Eigen::OuterStride<>(matrix.cols()));
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

// Eigen measures the CPU's caches to choose the blocks of a product. They
// decide the order of its sums, and so its bits: they are fixed here.
void fix_blocking() { Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20); }

std::size_t count_of(const Floats& matrix) {
  return static_cast<std::size_t>(matrix.size());
}

// set_columns() changes the shape, not the values.
void set_columns(Floats& matrix, std::size_t columns) {
  matrix.resize(matrix.size() / static_cast<Eigen::Index>(columns),
                static_cast<Eigen::Index>(columns));
}

MachineConfig serial_config() {
  MachineConfig config;
  config.backend = "serial";
  return config;
}

std::uint64_t zeros(const Floats& matrix) {
  return static_cast<std::uint64_t>((matrix.array() == 0.0f).count());
}

// sum_rows() adds the rows in their order.
void sum_rows(const Floats& matrix, Floats& out) {
  out.setZero(1, matrix.cols());
  for (Eigen::Index r = 0; r < matrix.rows(); ++r) out += matrix.row(r);
}

// Values is a matrix of a dtype. Eigen multiplies `floats`. In a 16-bit dtype,
// the same values are in `bits`, for swamp's operators and the optimizer.
struct Values {
  ScalarType dtype = kFloat32;
  Floats floats;
  Bits bits;  // empty in float32

  void resize(std::size_t rows, std::size_t columns) {
    floats.resize(static_cast<Eigen::Index>(rows),
                  static_cast<Eigen::Index>(columns));
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
    return {floats.data(), static_cast<std::size_t>(floats.rows()),
            static_cast<std::size_t>(floats.cols()), kFloat32};
  }
};

Tensor tensor_of(Floats& floats) {
  return {floats.data(), count_of(floats), kFloat32};
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

  RowVector vector() const { return {weight.floats.data(), kFloat32}; }
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
    : options(chosen), machine(machine_used) {
  for (std::size_t i = 0; i < kParameterCount; ++i) {
    const ParameterRow& row = kParameters[i];
    for (Values* values : {&parameters[i].weight, &parameters[i].gradient}) {
      values->dtype = options.dtype;
      values->resize(row.rows, row.columns);
    }
    Floats& weight = parameters[i].weight.floats;
    for (std::size_t k = 0; k < count_of(weight); ++k) {
      weight.data()[k] = row.center + random.between(row.limit);
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
  bits.resize(count_of(floats));
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

Model::Model(const ModelOptions& options, Random& random, Machine& machine) {
  fix_blocking();
  layers_ = std::make_unique<Layers>(options, random, machine);
}

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
    const float* byte = row_of(parameters[kEmbedding].weight.floats,
                               std::size_t{batch.contexts[i]});
    const float* place =
        row_of(parameters[kPosition].weight.floats, i % kContext);
    float* sum = row_of(stream.floats, i);
    for (std::size_t j = 0; j < kColumns; ++j) sum[j] = byte[j] + place[j];
  }
  round_stream(stream);
  for (std::size_t number = 0; number < kLayers; ++number) attention(number);
  round(stream.floats);
  set_columns(stream.floats, kInput);
  linear(stream.floats, kW1, kB1, hidden);
  hidden =
      hidden.unaryExpr([](float value) { return value < 0.0f ? 0.0f : value; });
  linear(hidden, kW2, kB2, logits.floats);
  if (logits.dtype != kFloat32) round(logits);
}

void Model::Layers::attention(std::size_t number) {
  const std::size_t first = first_of_layer(number);
  Attention& layer = layers[number];
  const auto rows = static_cast<std::size_t>(stream.floats.rows());
  layer.input = stream;
  layer.normalized.resize(rows, kColumns);
  layer.mean.resize(rows);
  layer.rstd.resize(rows);
  layer_norm(layer.input.matrix(), parameters[first + kNormWeight].vector(),
             parameters[first + kNormBias].vector(), layer.normalized.matrix(),
             layer.mean.data(), layer.rstd.data(), {}, &machine);
  take(layer.normalized);
  linear(layer.normalized.floats, first + kQkv, first + kQkvBias, layer.qkv);
  layer.mixed.resize(stream.floats.rows(), stream.floats.cols());
  options.use_flash_attn ? flash_attention(number) : unfused_attention(number);

  branch.floats.noalias() =
      layer.mixed * parameters[first + kOut].weight.floats;
  round(branch);
  residual_add_(stream.in_float32(), branch.matrix(),
                parameters[first + kOutBias].vector(), &machine);
  round_stream(stream);
}

// unfused_attention() computes the mixed values from queries, keys and values,
// as flash_attention() does.
void Model::Layers::unfused_attention(std::size_t number) {
  Attention& layer = layers[number];
  const auto rows = static_cast<std::size_t>(layer.qkv.rows());
  const SoftmaxOptions softmax = softmax_options(number);
  layer.probabilities.resize(rows * kHeads, kContext);
  for (const Head head : heads_of(rows)) {
    head.scores(layer.probabilities.floats) =
        head.queries(layer.qkv).lazyProduct(head.keys(layer.qkv).transpose()) *
        (kScoreScale / softmax.scale);
  }
  if (layer.probabilities.dtype != kFloat32) round(layer.probabilities);
  const Matrix scores = layer.probabilities.matrix();
  scaled_softmax(scores, scores, softmax, &machine);
  take(layer.probabilities);
  for (const Head head : heads_of(rows)) {
    head.queries(layer.mixed) = head.scores(layer.probabilities.floats)
                                    .lazyProduct(head.values(layer.qkv));
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
  const auto rows = static_cast<std::size_t>(matrix.rows());
  array.dtype = options.dtype;
  array.resize(rows * kHeads, kHeadColumns);
  for (const Head head : heads_of(rows)) {
    head.rows<kHeadColumns>(array.floats) = head.part(matrix, column);
  }
  round(array);  // sets the bits, and changes no value
}

void Model::Layers::merge_heads(HeadArray& array, std::size_t column,
                                Floats& matrix) {
  widen(array);
  for (const Head head : heads_of(static_cast<std::size_t>(matrix.rows()))) {
    head.part(matrix, column) = head.rows<kHeadColumns>(array.floats);
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
  hidden_gradient.noalias() =
      logits.floats * parameters[kW2].weight.floats.transpose();
  for (std::size_t i = 0; i < count_of(hidden); ++i) {
    if (hidden.data()[i] == 0.0f) hidden_gradient.data()[i] = 0.0f;
  }
  round_gradient(hidden_gradient);

  linear_gradients(stream.floats, hidden_gradient, kW1, kB1);
  stream_gradient.floats.noalias() =
      hidden_gradient * parameters[kW1].weight.floats.transpose();
  round_gradient(stream_gradient);
  set_columns(stream_gradient.floats, kColumns);
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
  mixed_gradient.noalias() =
      branch_gradient * parameters[first + kOut].weight.floats.transpose();
  round_gradient(mixed_gradient);

  qkv_gradient.resize(layer.qkv.rows(), layer.qkv.cols());
  options.use_flash_attn ? flash_attention_backward(number)
                         : unfused_attention_backward(number);
  linear_gradients(layer.normalized.floats, qkv_gradient, first + kQkv,
                   first + kQkvBias);
  normalized_gradient.floats.noalias() =
      qkv_gradient * parameters[first + kQkv].weight.floats.transpose();
  round_gradient(normalized_gradient);
  const Matrix gradient = normalized_gradient.matrix();
  layer_norm_backward(
      gradient, layer.input.matrix(), layer.mean.data(), layer.rstd.data(),
      parameters[first + kNormWeight].vector(), gradient,
      parameters[first + kNormWeight].gradient.floats.data(),
      parameters[first + kNormBias].gradient.floats.data(), {}, &machine);
  residual_add_(stream_gradient.in_float32(), gradient, {}, &machine);
  if (stream_gradient.dtype != kFloat32) round_gradient(stream_gradient);
}

// unfused_attention_backward() goes from the gradient of the mixed values to
// those of queries, keys and values.
void Model::Layers::unfused_attention_backward(std::size_t number) {
  Attention& layer = layers[number];
  const SoftmaxOptions softmax = softmax_options(number);
  const auto rows = static_cast<std::size_t>(layer.qkv.rows());
  score_gradient.resize(rows * kHeads, kContext);
  for (const Head head : heads_of(rows)) {
    const auto mixed = head.queries(mixed_gradient);
    auto probabilities = head.scores(score_gradient.floats);
    probabilities = mixed.lazyProduct(head.values(layer.qkv).transpose());
    probabilities.triangularView<Eigen::StrictlyUpper>().setZero();
    head.values(qkv_gradient) =
        head.scores(layer.probabilities.floats).transpose().lazyProduct(mixed);
  }
  round_gradient(score_gradient);
  const Matrix gradient = score_gradient.matrix();
  scaled_softmax_backward(gradient, layer.probabilities.matrix(), gradient,
                          softmax, &machine);
  widen(score_gradient);
  const float scale = kScoreScale / softmax.scale;
  for (const Head head : heads_of(rows)) {
    const auto scores = head.scores(score_gradient.floats);
    head.queries(qkv_gradient) =
        scores.lazyProduct(head.keys(layer.qkv)) * scale;
    head.keys(qkv_gradient) =
        scores.transpose().lazyProduct(head.queries(layer.qkv)) * scale;
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
  bytes.setZero();
  places.setZero();
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* from = row_of(stream_gradient.floats, i);
    float* byte = row_of(bytes, std::size_t{batch.contexts[i]});
    float* place = row_of(places, i % kContext);
    for (std::size_t j = 0; j < kColumns; ++j) {
      byte[j] += from[j];
      place[j] += from[j];
    }
  }
}

void Model::Layers::linear(const Floats& in, std::size_t weight,
                           std::size_t bias, Floats& out) {
  out.noalias() = in * parameters[weight].weight.floats;
  out.rowwise() += parameters[bias].weight.floats.row(0);
  round(out);
}

void Model::Layers::linear_gradients(const Floats& in, const Floats& gradient,
                                     std::size_t weight, std::size_t bias) {
  parameters[weight].gradient.floats.noalias() = in.transpose() * gradient;
  sum_rows(gradient, parameters[bias].gradient.floats);
}

}  // namespace swamp::cli
