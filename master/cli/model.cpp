#include "master/cli/model.h"

#include <algorithm>

#include "master/cli/cross_entropy.h"
#include "master/cli/rounding.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kBytes = 256;  // the vocabulary
constexpr std::size_t kEmbeddingColumns = 24;
constexpr std::size_t kInput = kContext * kEmbeddingColumns;
constexpr std::size_t kHidden = 512;

// Uniform weights of variance 2 / inputs (He) before the ReLU; smaller ones
// before the softmax, so that training starts near the uniform guess.
constexpr float kEmbeddingLimit = 0.5f;
constexpr float kW1Limit = 0.125f;   // sqrt(6 / 384)
constexpr float kW2Limit = 0.0442f;  // sqrt(1 / 512)

void sum_rows(const Matrix& matrix, Matrix& out) {
  out.resize(1, matrix.columns);
  std::fill(out.values.begin(), out.values.end(), 0.0f);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    const float* row = matrix.row(r);
    for (std::size_t i = 0; i < matrix.columns; ++i) out.values[i] += row[i];
  }
}

}  // namespace

Model::Model(ScalarType dtype, Random& random) : dtype_(dtype) {
  add_parameter("embedding", kBytes, kEmbeddingColumns, kEmbeddingLimit,
                random);
  add_parameter("w1", kInput, kHidden, kW1Limit, random);
  add_parameter("b1", 1, kHidden, 0.0f, random);
  add_parameter("w2", kHidden, kBytes, kW2Limit, random);
  add_parameter("b2", 1, kBytes, 0.0f, random);
  widen_weights();
}

void Model::add_parameter(const char* name, std::size_t rows,
                          std::size_t columns, float limit, Random& random) {
  Parameter parameter;
  parameter.name = name;
  parameter.weight.resize(rows, columns);
  parameter.gradient.resize(rows, columns);
  for (float& value : parameter.weight.values) value = random.between(limit);
  if (dtype_ != kFloat32) {
    narrow_values(dtype_, parameter.weight.values, parameter.weight_bits);
    parameter.gradient_bits.resize(rows * columns);
  }
  parameters_.push_back(std::move(parameter));
}

std::vector<ModelParameter> Model::tensors() {
  const auto tensor = [&](Matrix& values, std::vector<std::uint16_t>& bits) {
    void* data = values.values.data();
    if (dtype_ != kFloat32) data = bits.data();
    return Tensor{data, values.values.size(), dtype_};
  };
  std::vector<ModelParameter> tensors;
  for (Parameter& parameter : parameters_) {
    tensors.push_back({parameter.name,
                       tensor(parameter.weight, parameter.weight_bits),
                       tensor(parameter.gradient, parameter.gradient_bits)});
  }
  return tensors;
}

void Model::widen_weights() {
  if (dtype_ == kFloat32) return;
  for (Parameter& parameter : parameters_) {
    widen_values(dtype_, parameter.weight_bits, parameter.weight.values);
  }
}

std::vector<const char*> Model::parameter_names() const {
  std::vector<const char*> names;
  for (const Parameter& parameter : parameters_)
    names.push_back(parameter.name);
  return names;
}

std::uint64_t Model::parameter_count() const noexcept {
  std::uint64_t count = 0;
  for (const Parameter& parameter : parameters_) {
    count += parameter.weight.values.size();
  }
  return count;
}

double Model::loss_and_gradients(const Batch& batch, float scale) {
  forward(batch);
  const double loss = cross_entropy(logits_, batch.targets, scale);
  activation_underflow_ = 0;
  round_activation_gradient(logits_);
  backward(batch);
  underflow_ = 0;
  if (dtype_ == kFloat32) return loss;
  for (Parameter& parameter : parameters_) {
    underflow_ += narrow_values(dtype_, parameter.gradient.values,
                                parameter.gradient_bits);
  }
  return loss;
}

void Model::forward(const Batch& batch) {
  input_.resize(batch.targets.size(), kInput);
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* row = parameters_[kEmbedding].weight.row(batch.contexts[i]);
    std::copy_n(row, kEmbeddingColumns, &input_.values[i * kEmbeddingColumns]);
  }
  linear(input_, kW1, kB1, hidden_);
  for (float& value : hidden_.values) value = value < 0.0f ? 0.0f : value;
  linear(hidden_, kW2, kB2, logits_);
}

void Model::backward(const Batch& batch) {
  linear_gradients(hidden_, logits_, kW2, kB2);
  multiply_right_transposed(logits_, parameters_[kW2].weight, hidden_gradient_);
  for (std::size_t i = 0; i < hidden_.values.size(); ++i) {
    if (hidden_.values[i] == 0.0f) hidden_gradient_.values[i] = 0.0f;
  }
  round_activation_gradient(hidden_gradient_);

  linear_gradients(input_, hidden_gradient_, kW1, kB1);
  multiply_right_transposed(hidden_gradient_, parameters_[kW1].weight,
                            input_gradient_);
  round_activation_gradient(input_gradient_);

  Matrix& gradient = parameters_[kEmbedding].gradient;
  std::fill(gradient.values.begin(), gradient.values.end(), 0.0f);
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* from = &input_gradient_.values[i * kEmbeddingColumns];
    float* row = gradient.row(batch.contexts[i]);
    for (std::size_t j = 0; j < kEmbeddingColumns; ++j) row[j] += from[j];
  }
}

void Model::round_activation_gradient(Matrix& gradient) {
  activation_underflow_ += round_values(dtype_, gradient.values);
}

void Model::linear(const Matrix& in, std::size_t weight, std::size_t bias,
                   Matrix& out) {
  multiply(in, parameters_[weight].weight, out);
  const Matrix& added = parameters_[bias].weight;
  for (std::size_t r = 0; r < out.rows; ++r) {
    float* row = out.row(r);
    for (std::size_t i = 0; i < out.columns; ++i) row[i] += added.values[i];
  }
  round_values(dtype_, out.values);
}

void Model::linear_gradients(const Matrix& in, const Matrix& out_gradient,
                             std::size_t weight, std::size_t bias) {
  multiply_left_transposed(in, out_gradient, parameters_[weight].gradient);
  sum_rows(out_gradient, parameters_[bias].gradient);
}

}  // namespace swamp::cli
