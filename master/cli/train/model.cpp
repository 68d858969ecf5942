#include "master/cli/train/model.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "swamp/float_formats.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kBytes = 256;  // the vocabulary
constexpr std::size_t kEmbeddingColumns = 24;
constexpr std::size_t kInput = kContext * kEmbeddingColumns;
constexpr std::size_t kHidden = 512;

// Uniform weights of variance 2 / inputs (He) before the ReLU, and smaller ones
// before the softmax, so that training starts near the uniform guess.
constexpr float kEmbeddingLimit = 0.5f;
constexpr float kW1Limit = 0.125f;   // sqrt(6 / 384)
constexpr float kW2Limit = 0.0442f;  // sqrt(1 / 512)

using Matrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Bits = std::vector<std::uint16_t>;

// Eigen measures the CPU's caches to choose the blocks of a product. They
// decide the order of its sums, and so its bits: they are fixed here.
void fix_blocking() { Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20); }

void resize(Matrix& matrix, std::size_t rows, std::size_t columns) {
  matrix.resize(static_cast<Eigen::Index>(rows),
                static_cast<Eigen::Index>(columns));
}

float* row_of(Matrix& matrix, std::size_t row) {
  return matrix.data() + row * static_cast<std::size_t>(matrix.cols());
}

std::size_t count_of(const Matrix& matrix) {
  return static_cast<std::size_t>(matrix.size());
}

// sum_rows() adds the rows in their order.
void sum_rows(const Matrix& matrix, Matrix& out) {
  out.setZero(1, matrix.cols());
  for (Eigen::Index r = 0; r < matrix.rows(); ++r) out += matrix.row(r);
}

// Rounding to the dtype of the model, to nearest even; a value that is too
// large becomes inf. Floats hold every float16 and bfloat16 exactly, so that
// Eigen can multiply them.

// with_format() calls `action` with the conversions of a 16-bit dtype.
template <class Action>
auto with_format(ScalarType dtype, const Action& action) {
  const auto float16 = [&] {
    return action([](float value) { return float16_from_float(value); },
                  [](std::uint16_t bits) { return float16_to_float(bits); });
  };
  const auto bfloat16 = [&] {
    return action([](float value) { return bfloat16_from_float(value); },
                  [](std::uint16_t bits) { return bfloat16_to_float(bits); });
  };
  return dtype == kFloat16 ? float16() : bfloat16();
}

// is_lost() returns whether rounding made a value 0.
bool is_lost(float value, std::uint16_t bits) noexcept {
  return value != 0.0f && (bits & 0x7fffu) == 0;
}

// round_values() rounds every value in place, and returns the number of values
// that it made 0. float32 is left alone.
std::uint64_t round_values(ScalarType dtype, Matrix& matrix) {
  if (dtype == kFloat32) return 0;
  float* const values = matrix.data();
  const std::size_t count = count_of(matrix);
  return with_format(dtype, [&](auto narrow, auto widen) {
    std::uint64_t lost = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t bits = narrow(values[i]);
      lost += is_lost(values[i], bits) ? 1 : 0;
      values[i] = widen(bits);
    }
    return lost;
  });
}

// narrow_values() sets `bits` to the rounded values of a 16-bit dtype, and
// returns the number of values that became 0.
std::uint64_t narrow_values(ScalarType dtype, const Matrix& matrix,
                            Bits& bits) {
  bits.resize(count_of(matrix));
  return with_format(dtype, [&](auto narrow, auto /*widen*/) {
    std::uint64_t lost = 0;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = narrow(matrix.data()[i]);
      lost += is_lost(matrix.data()[i], bits[i]) ? 1 : 0;
    }
    return lost;
  });
}

void widen_values(ScalarType dtype, const Bits& bits, Matrix& matrix) {
  with_format(dtype, [&](auto /*narrow*/, auto widen) {
    for (std::size_t i = 0; i < bits.size(); ++i) {
      matrix.data()[i] = widen(bits[i]);
    }
  });
}

// exp_of() and log_of() use only + - * /. libm chooses its exp and log by CPU,
// but the same seed must give the same weights everywhere.

double power_of_two(std::int64_t exponent) {  // must be normal
  const auto bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// exp_of() takes x <= 0, -inf or nan.
double exp_of(double x) {
  if (std::isnan(x)) return x;
  if (x < -700.0) return 0.0;
  const auto n = static_cast<std::int64_t>(x * 1.4426950408889634 - 0.5);
  // ln 2 in two parts; the product with the first is exact.
  const double r = x - static_cast<double>(n) * 0x1.62e42feep-1 -
                   static_cast<double>(n) * 0x1.a39ef35793c76p-33;
  double sum = 1.0;  // Taylor's series, |r| < 0.35
  for (int k = 13; k > 0; --k) sum = 1.0 + sum * r / k;
  return sum * power_of_two(n);
}

// log_of() takes x >= 1, inf or nan.
double log_of(double x) {
  if (!std::isfinite(x)) return x;
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  const double mantissa = x * power_of_two(-exponent);  // 1 <= mantissa < 2
  const double s = (mantissa - 1.4142135623730951) /
                   (mantissa + 1.4142135623730951);  // |s| < 0.172
  double sum = 0.0;  // log(mantissa / sqrt(2)) = 2 atanh(s)
  for (int k = 21; k > 0; k -= 2) sum = sum * s * s + 1.0 / k;
  return (static_cast<double>(exponent) + 0.5) * 0.6931471805599453 +
         2.0 * s * sum;
}

// row_loss() returns the loss of one row of logits, and makes them
// probabilities.
double row_loss(float* logits, std::size_t count, std::size_t target,
                std::vector<double>& exps) {
  float largest = logits[0];
  for (std::size_t i = 1; i < count; ++i) {
    if (logits[i] > largest) largest = logits[i];
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    exps[i] = exp_of(double{logits[i]} - double{largest});
    sum += exps[i];
  }
  const double loss = log_of(sum) - (double{logits[target]} - double{largest});
  for (std::size_t i = 0; i < count; ++i) {
    logits[i] = static_cast<float>(exps[i] / sum);
  }
  return loss;
}

// cross_entropy() returns the mean loss of softmax(logits) against `targets`,
// one a row, and replaces the logits by the gradient of scale * loss. It is
// computed in float32 or better, as autocast does; the gradient is not yet
// rounded.
double cross_entropy(Matrix& logits, const std::vector<std::uint8_t>& targets,
                     float scale) {
  const auto rows = static_cast<std::size_t>(logits.rows());
  const auto columns = static_cast<std::size_t>(logits.cols());
  std::vector<double> exps(columns);
  const float row_scale = scale / static_cast<float>(rows);
  double total = 0.0;
  for (std::size_t r = 0; r < rows; ++r) {
    float* row = row_of(logits, r);
    total += row_loss(row, columns, targets[r], exps);
    row[targets[r]] -= 1.0f;
    for (std::size_t i = 0; i < columns; ++i) row[i] *= row_scale;
  }
  return total / static_cast<double>(rows);
}

// Parameter has the weights that the optimizer writes and the gradient that it
// reads. In a 16-bit model both are 16-bit; `weight` and `gradient` then hold
// the same values widened, which Eigen can multiply.
struct Parameter {
  const char* name;
  Matrix weight;
  Matrix gradient;
  Bits weight_bits;  // empty in a float32 model
  Bits gradient_bits;
};

}  // namespace

struct Model::Layers {
  enum : std::size_t { kEmbedding, kW1, kB1, kW2, kB2 };

  ScalarType dtype;
  std::vector<Parameter> parameters;
  std::uint64_t underflow = 0;
  std::uint64_t activation_underflow = 0;
  Matrix input;
  Matrix hidden;
  Matrix logits;  // and their gradient
  Matrix hidden_gradient;
  Matrix input_gradient;

  void add_parameter(const char* name, std::size_t rows, std::size_t columns,
                     float limit, Random& random);
  void forward(const Batch& batch);
  void backward(const Batch& batch);
  void linear(const Matrix& in, std::size_t weight, std::size_t bias,
              Matrix& out);
  void linear_gradients(const Matrix& in, const Matrix& out_gradient,
                        std::size_t weight, std::size_t bias);
  void round_activation_gradient(Matrix& gradient) {
    activation_underflow += round_values(dtype, gradient);
  }
};

Model::Model(ScalarType dtype, Random& random)
    : layers_(std::make_unique<Layers>()) {
  fix_blocking();
  layers_->dtype = dtype;
  layers_->add_parameter("embedding", kBytes, kEmbeddingColumns,
                         kEmbeddingLimit, random);
  layers_->add_parameter("w1", kInput, kHidden, kW1Limit, random);
  layers_->add_parameter("b1", 1, kHidden, 0.0f, random);
  layers_->add_parameter("w2", kHidden, kBytes, kW2Limit, random);
  layers_->add_parameter("b2", 1, kBytes, 0.0f, random);
  widen_weights();
}

Model::~Model() = default;

void Model::Layers::add_parameter(const char* name, std::size_t rows,
                                  std::size_t columns, float limit,
                                  Random& random) {
  Parameter parameter;
  parameter.name = name;
  resize(parameter.weight, rows, columns);
  resize(parameter.gradient, rows, columns);
  for (std::size_t i = 0; i < rows * columns; ++i) {
    parameter.weight.data()[i] = random.between(limit);
  }
  if (dtype != kFloat32) {
    narrow_values(dtype, parameter.weight, parameter.weight_bits);
    parameter.gradient_bits.resize(rows * columns);
  }
  parameters.push_back(std::move(parameter));
}

std::vector<ModelParameter> Model::tensors() {
  const ScalarType dtype = layers_->dtype;
  const auto tensor = [&](Matrix& values, Bits& bits) {
    void* data = values.data();
    if (dtype != kFloat32) data = bits.data();
    return Tensor{data, count_of(values), dtype};
  };
  std::vector<ModelParameter> tensors;
  for (Parameter& parameter : layers_->parameters) {
    tensors.push_back({parameter.name,
                       tensor(parameter.weight, parameter.weight_bits),
                       tensor(parameter.gradient, parameter.gradient_bits)});
  }
  return tensors;
}

void Model::widen_weights() {
  if (layers_->dtype == kFloat32) return;
  for (Parameter& parameter : layers_->parameters) {
    widen_values(layers_->dtype, parameter.weight_bits, parameter.weight);
  }
}

std::vector<const char*> Model::parameter_names() const {
  std::vector<const char*> names;
  for (const Parameter& parameter : layers_->parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

std::uint64_t Model::parameter_count() const noexcept {
  std::uint64_t count = 0;
  for (const Parameter& parameter : layers_->parameters) {
    count += count_of(parameter.weight);
  }
  return count;
}

std::uint64_t Model::underflow() const noexcept { return layers_->underflow; }

std::uint64_t Model::activation_underflow() const noexcept {
  return layers_->activation_underflow;
}

double Model::loss_and_gradients(const Batch& batch, float scale) {
  Layers& layers = *layers_;
  layers.forward(batch);
  const double loss = cross_entropy(layers.logits, batch.targets, scale);
  layers.activation_underflow = 0;
  layers.round_activation_gradient(layers.logits);
  layers.backward(batch);
  layers.underflow = 0;
  if (layers.dtype == kFloat32) return loss;
  for (Parameter& parameter : layers.parameters) {
    layers.underflow += narrow_values(layers.dtype, parameter.gradient,
                                      parameter.gradient_bits);
  }
  return loss;
}

void Model::Layers::forward(const Batch& batch) {
  resize(input, batch.targets.size(), kInput);
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* row = row_of(parameters[kEmbedding].weight, batch.contexts[i]);
    std::copy_n(row, kEmbeddingColumns, input.data() + i * kEmbeddingColumns);
  }
  linear(input, kW1, kB1, hidden);
  hidden =
      hidden.unaryExpr([](float value) { return value < 0.0f ? 0.0f : value; });
  linear(hidden, kW2, kB2, logits);
}

void Model::Layers::backward(const Batch& batch) {
  linear_gradients(hidden, logits, kW2, kB2);
  hidden_gradient.noalias() = logits * parameters[kW2].weight.transpose();
  for (std::size_t i = 0; i < count_of(hidden); ++i) {
    if (hidden.data()[i] == 0.0f) hidden_gradient.data()[i] = 0.0f;
  }
  round_activation_gradient(hidden_gradient);

  linear_gradients(input, hidden_gradient, kW1, kB1);
  input_gradient.noalias() =
      hidden_gradient * parameters[kW1].weight.transpose();
  round_activation_gradient(input_gradient);

  Matrix& gradient = parameters[kEmbedding].gradient;
  gradient.setZero();
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const float* from = input_gradient.data() + i * kEmbeddingColumns;
    float* row = row_of(gradient, batch.contexts[i]);
    for (std::size_t j = 0; j < kEmbeddingColumns; ++j) row[j] += from[j];
  }
}

void Model::Layers::linear(const Matrix& in, std::size_t weight,
                           std::size_t bias, Matrix& out) {
  out.noalias() = in * parameters[weight].weight;
  out.rowwise() += parameters[bias].weight.row(0);
  round_values(dtype, out);
}

void Model::Layers::linear_gradients(const Matrix& in,
                                     const Matrix& out_gradient,
                                     std::size_t weight, std::size_t bias) {
  parameters[weight].gradient.noalias() = in.transpose() * out_gradient;
  sum_rows(out_gradient, parameters[bias].gradient);
}

}  // namespace swamp::cli
