#ifndef SWAMP_MASTER_CLI_TRAIN_MODEL_H_
#define SWAMP_MASTER_CLI_TRAIN_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "master/cli/train/text_data.h"
#include "swamp/mixed_precision.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// Model predicts the next byte of a text: an embedding of each byte of the
// context, one hidden layer with ReLU (which needs no libm, so its bits are the
// same everywhere), and logits for the 256 bytes. Products are float32; every
// result is rounded to the dtype.
class Model {
 public:
  Model(ScalarType dtype, Random& random);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // loss_and_gradients() returns the mean loss of the batch and sets the
  // gradients of scale * loss.
  double loss_and_gradients(const Batch& batch, float scale);

  // tensors() returns the parameters as an optimizer takes them. Their
  // addresses are valid as long as the model lives.
  std::vector<ModelParameter> tensors();

  // widen_weights() must follow every write to 16-bit weights.
  void widen_weights();

  std::vector<const char*> parameter_names() const;
  std::uint64_t parameter_count() const noexcept;
  // underflow() is the number of elements that the last rounding of the
  // parameters' gradients made 0. activation_underflow() counts the gradients
  // that flow back: what is lost there reaches no parameter, and is in no later
  // count.
  std::uint64_t underflow() const noexcept;
  std::uint64_t activation_underflow() const noexcept;

 private:
  struct Layers;  // they are Eigen's, which is slow to compile
  std::unique_ptr<Layers> layers_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_MODEL_H_
