// A small causal language model on bytes: embedding, two layers of attention
// with residual connections (attention.cpp), a hidden layer, and their
// gradients, written out by hand. Products, softmax, norms, cross entropy,
// attention and casts are swamp's operators.
#include "master/cli/train/model.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "master/cli/train/layers.h"
#include "swamp/foreach.h"
#include "swamp/rows.h"

namespace swamp::cli {
namespace {

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
    {"embedding", kBytes, kWidth, 1.7f, 0.0f},  // sqrt(3)
    {"position", kContext, kWidth, 0.1f, 0.0f},
    {"norm1.weight", 1, kWidth, 0.0f, 1.0f},
    {"norm1.bias", 1, kWidth, 0.0f, 0.0f},
    {"qkv1.weight", kWidth, 3 * kWidth, 0.35f, 0.0f},  // sqrt(3 / 24)
    {"qkv1.bias", 1, 3 * kWidth, 0.0f, 0.0f},
    {"out1.weight", kWidth, kWidth, 0.1f, 0.0f},
    {"out1.bias", 1, kWidth, 0.0f, 0.0f},
    {"norm2.weight", 1, kWidth, 0.0f, 1.0f},
    {"norm2.bias", 1, kWidth, 0.0f, 0.0f},
    {"qkv2.weight", kWidth, 3 * kWidth, 0.35f, 0.0f},
    {"qkv2.bias", 1, 3 * kWidth, 0.0f, 0.0f},
    {"out2.weight", kWidth, kWidth, 0.1f, 0.0f},
    {"out2.bias", 1, kWidth, 0.0f, 0.0f},
    {"w1", kInput, kHidden, 0.125f, 0.0f},  // sqrt(6 / 384)
    {"b1", 1, kHidden, 0.0f, 0.0f},
    {"w2", kHidden, kBytes, 0.0442f, 0.0f},  // sqrt(1 / 512)
    {"b2", 1, kBytes, 0.0f, 0.0f},
};

static_assert(std::size(kParameters) == kParameterCount);

constexpr std::size_t kLinearWeights[] = {first_of_layer(0) + kQkv,
                                          first_of_layer(0) + kOut,
                                          first_of_layer(1) + kQkv,
                                          first_of_layer(1) + kOut,
                                          kW1,
                                          kW2};

// linear_number() is the place of a weight in kLinearWeights.
std::size_t linear_number(std::size_t weight) {
  return static_cast<std::size_t>(
      std::find(kLinearWeights, std::end(kLinearWeights), weight) -
      kLinearWeights);
}

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
  batch.seed = random.state();
}

Model::Layers::Layers(const ModelOptions& chosen, Random& random,
                      Machine& machine_used)
    : options(chosen), machine(machine_used) {
  if (!options.float8.recipe.empty()) {
    float8.emplace(options.float8, std::size(kLinearWeights), machine);
  }
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

void Model::update_scales(Communicator& communicator) {
  if (layers_->float8) layers_->float8->update(communicator);
}

std::string Model::scales() const {
  return layers_->float8 ? layers_->float8->state() : "";
}

void Model::load_scales(const std::string& state) {
  if (layers_->float8) layers_->float8->load_state(state);
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
  if (layers.float8) layers.float8->begin(batch.seed);
  layers.forward(batch);
  const double loss = layers.loss(batch, scale);
  layers.backward(batch);
  layers.narrow_parameter_gradients();
  return loss;
}

void Model::Layers::forward(const Batch& batch) {
  stream.resize(batch.contexts.size(), kWidth);
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* byte =
        parameters[kEmbedding].weight.floats.row(batch.contexts[i]);
    const float* place = parameters[kPosition].weight.floats.row(i % kContext);
    float* sum = stream.floats.row(i);
    for (std::size_t j = 0; j < kWidth; ++j) sum[j] = byte[j] + place[j];
  }
  round_stream(stream);
  for (std::size_t number = 0; number < kLayers; ++number) attention(number);
  round(stream.floats);
  stream.floats.set_columns(kInput);
  linear(stream.floats, kW1, kB1, hidden);
  round(hidden);
  for (float& value : hidden.data) value = value < 0.0f ? 0.0f : value;
  linear(hidden, kW2, kB2, logits.floats);
  round(logits);
}

double Model::Layers::loss(const Batch& batch, float scale) {
  const std::size_t rows = batch.targets.size();
  targets.assign(batch.targets.begin(), batch.targets.end());
  losses.resize(rows);
  lse.resize(rows);
  lse_low.resize(rows);
  loss_gradients.assign(rows, scale / static_cast<float>(rows));
  const Matrix matrix = logits.matrix();
  const CrossEntropyTotal total =
      cross_entropy(matrix, targets.data(), losses.data(), lse.data(),
                    lse_low.data(), {}, &machine);
  cross_entropy_backward(matrix, targets.data(), lse.data(), lse_low.data(),
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
  linear_backward(hidden, logits.floats, kW2, kB2, hidden_gradient);
  for (std::size_t i = 0; i < hidden.data.size(); ++i) {
    if (hidden.data[i] == 0.0f) hidden_gradient.data[i] = 0.0f;
  }
  round_gradient(hidden_gradient);

  linear_backward(stream.floats, hidden_gradient, kW1, kB1,
                  stream_gradient.floats);
  round_gradient(stream_gradient);
  stream_gradient.floats.set_columns(kWidth);
  for (std::size_t number = kLayers; number-- > 0;) attention_backward(number);
  embedding_backward(batch);
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
    for (std::size_t j = 0; j < kWidth; ++j) {
      byte[j] += from[j];
      place[j] += from[j];
    }
  }
}

void Model::Layers::linear(Floats& in, std::size_t weight, std::size_t bias,
                           Floats& out) {
  Floats& weights = parameters[weight].weight.floats;
  if (!float8) {
    Matrices rows;
    if (bias != kNoBias) rows = parameters[bias].weight.floats;
    rows.rows = in.rows;
    rows.row_step = 0;
    return product(in, weights, out, bias != kNoBias ? &rows : nullptr);
  }
  out.resize(in.rows, weights.columns);
  float8->forward(linear_number(weight), matrix_of(in), matrix_of(weights),
                  matrix_of(out));
  if (bias == kNoBias) return;
  const float* added = parameters[bias].weight.floats.row(0);
  for (std::size_t r = 0; r < out.rows; ++r) {
    for (std::size_t c = 0; c < out.columns; ++c) out.row(r)[c] += added[c];
  }
}

void Model::Layers::linear_backward(Floats& in, Floats& gradient,
                                    std::size_t weight, std::size_t bias,
                                    Floats& in_gradient) {
  Parameter& own = parameters[weight];
  float one = 1;  // a row of ones, by steps of 0, adds the rows
  const Matrices ones = {&one, 1, 1, gradient.rows, 0, 0, 0};
  product(ones, gradient, parameters[bias].gradient.floats);
  if (float8) {
    in_gradient.resize(in.rows, in.columns);
    return float8->backward(linear_number(weight), matrix_of(gradient),
                            matrix_of(own.gradient.floats),
                            matrix_of(in_gradient));
  }
  product(Matrices(in).transposed(), gradient, own.gradient.floats);
  product(gradient, Matrices(own.weight.floats).transposed(), in_gradient);
}

}  // namespace swamp::cli
