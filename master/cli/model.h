#ifndef SWAMP_MASTER_CLI_MODEL_H_
#define SWAMP_MASTER_CLI_MODEL_H_

#include <cstdint>
#include <vector>

#include "master/cli/matrix.h"
#include "master/cli/random.h"
#include "master/cli/text_data.h"
#include "swamp/mixed_precision.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// Parameter has the weights that the optimizer writes and the gradient that it
// reads. In a 16-bit model both are 16-bit; `weight` and `gradient` then hold
// the same values widened, which is what Eigen can multiply.
struct Parameter {
  const char* name;
  Matrix weight;
  Matrix gradient;
  std::vector<std::uint16_t> weight_bits;  // empty in a float32 model
  std::vector<std::uint16_t> gradient_bits;
};

// Model guesses the next byte of a text: an embedding of each byte of the
// context, one hidden layer with ReLU (no libm, the same bits everywhere), and
// logits for the 256 bytes. Products are float32; every result is rounded to
// the dtype.
class Model {
 public:
  Model(ScalarType dtype, Random& random);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // loss_and_gradients() returns the mean loss of the batch and sets the
  // gradients of scale * loss.
  double loss_and_gradients(const Batch& batch, float scale);

  // tensors() are the parameters as an optimizer takes them; they stay where
  // they are as long as the model lives.
  std::vector<ModelParameter> tensors();

  // widen_weights() follows a write to the 16-bit weights.
  void widen_weights();

  std::vector<const char*> parameter_names() const;
  std::uint64_t parameter_count() const noexcept;
  // underflow() is how many elements of the parameters' gradients the last
  // rounding made 0; activation_underflow() the same of the gradients that flow
  // back. What is lost there reaches no parameter, and no later count sees it.
  std::uint64_t underflow() const noexcept { return underflow_; }
  std::uint64_t activation_underflow() const noexcept {
    return activation_underflow_;
  }

 private:
  enum : std::size_t { kEmbedding, kW1, kB1, kW2, kB2 };

  void add_parameter(const char* name, std::size_t rows, std::size_t columns,
                     float limit, Random& random);
  void forward(const Batch& batch);
  void backward(const Batch& batch);
  void round_activation_gradient(Matrix& gradient);
  void linear(const Matrix& in, std::size_t weight, std::size_t bias,
              Matrix& out);
  void linear_gradients(const Matrix& in, const Matrix& out_gradient,
                        std::size_t weight, std::size_t bias);

  ScalarType dtype_;
  std::vector<Parameter> parameters_;
  std::uint64_t underflow_ = 0;
  std::uint64_t activation_underflow_ = 0;
  Matrix input_;
  Matrix hidden_;
  Matrix logits_;  // and their gradient
  Matrix hidden_gradient_;
  Matrix input_gradient_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_MODEL_H_
