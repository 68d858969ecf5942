#ifndef SWAMP_MASTER_CLI_TRAIN_MODEL_H_
#define SWAMP_MASTER_CLI_TRAIN_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "swamp/communicator.h"
#include "swamp/machine.h"
#include "swamp/mixed_precision.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// Random is splitmix64 (Steele, Lea, Flood 2014). It has its own distributions,
// because those of <random>, and so the weights, differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  // A Random with this seed continues the sequence.
  std::uint64_t state() const noexcept { return state_; }

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  // below() is uniform in 0..count-1; count > 0.
  std::uint64_t below(std::uint64_t count) noexcept {
    // Without the values below 2^64 mod count all remainders are equally
    // likely.
    const std::uint64_t unfair = (0 - count) % count;
    std::uint64_t value = next();
    while (value < unfair) value = next();
    return value % count;
  }

  // between() is uniform in [-limit, limit).
  float between(float limit) noexcept {
    const auto upper = static_cast<std::int64_t>(next() >> 40);  // 24 bits
    const auto unit = static_cast<float>(upper - (1 << 23)) * 0x1p-23f;
    return unit * limit;
  }

 private:
  std::uint64_t state_;
};

// kContext is the number of bytes from which the model predicts the next one.
inline constexpr std::size_t kContext = 16;

// Batch is examples: kContext bytes of context and one target each.
struct Batch {
  std::vector<std::uint8_t> contexts;
  std::vector<std::uint8_t> targets;
  std::uint64_t seed = 0;  // of roundings at random
};

// sample_batch() fills `batch` with `count` examples from random places.
void sample_batch(const std::string& text, std::size_t count, Random& random,
                  Batch& batch);

// Float8Options are Megatron's flags of the products of the linear layers.
struct Float8Options {
  // delayed, tensorwise, mxfp8, blockwise or nvfp4; empty: products of float32
  std::string recipe;
  std::string format;  // e4m3, hybrid (gradients are e5m2) or e2m1
  // Only of delayed scaling:
  std::int64_t margin = 0;
  std::int64_t amax_history_length = 1;
  std::string amax_compute_algorithm = "most_recent";
};

// The dtype of a model, and Megatron's flags that select computations in more
// than 16 bits. Only use_flash_attn changes a float32 model.
struct ModelOptions {
  ScalarType dtype = kFloat16;
  // The softmax takes float32 scores, unless query_key_layer_scaling is set,
  // instead of scores that are rounded to the dtype.
  bool attention_softmax_in_fp32 = false;
  // The scores of layer N are divided by N before they are rounded, and
  // multiplied by N inside the softmax.
  bool query_key_layer_scaling = false;
  // The loss takes the logits in the dtype, instead of a float32 copy.
  bool fp16_lm_cross_entropy = false;
  // The residual stream and its gradient are float32, not of the dtype.
  bool fp32_residual_connection = false;
  // Attention is swamp's flash attention, without a matrix of scores: they and
  // the probabilities are float32, and only the result is rounded.
  bool use_flash_attn = false;
  // The linear layers multiply codes of 8 or 4 bits, with float32 sums.
  Float8Options float8 = {};
};

// Model predicts the next byte of a text: an embedding of each byte of the
// context and of its position, two layers of causal attention, each with a
// LayerNorm before it and a residual connection, one hidden layer with ReLU,
// and logits for the 256 bytes. Softmax, LayerNorm, residual connections and
// the loss are swamp's row operators; products are swamp's, in float32; every
// result is rounded to the dtype. Nothing uses libm, so that the bits are the
// same on every CPU.
class Model {
 public:
  // `machine` must outlive the model.
  Model(const ModelOptions& options, Random& random, Machine& machine);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // loss_and_gradients() returns the mean loss of the batch and sets the
  // gradients of scale * loss. Throws Error with SWAMP_UNSUPPORTED if the
  // machine's LDM is too small for the operators.
  double loss_and_gradients(const Batch& batch, float scale);

  // tensors() returns the parameters as an optimizer takes them. Their
  // addresses are valid as long as the model lives.
  std::vector<ModelParameter> tensors();

  // update_scales() ends a step of delayed scaling; collective. Its state is
  // text, empty for other recipes; load_scales() throws Error if it is damaged.
  void update_scales(Communicator& communicator);
  std::string scales() const;
  void load_scales(const std::string& state);

  // widen_weights() must follow every write to 16-bit weights.
  void widen_weights();

  std::vector<const char*> parameter_names() const;
  std::uint64_t parameter_count() const noexcept;
  // underflow() is the number of elements that the last rounding of the
  // parameters' gradients made 0. activation_underflow() counts the gradients
  // that flow back: an element lost there reaches no parameter and no later
  // count. It does not include what the row operators themselves round, except
  // for the gradients of the logits.
  std::uint64_t underflow() const noexcept;
  std::uint64_t activation_underflow() const noexcept;

 private:
  struct Layers;
  std::unique_ptr<Layers> layers_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_MODEL_H_
