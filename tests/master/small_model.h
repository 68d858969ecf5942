// A model of a few parameters, with chosen gradients.
#ifndef SWAMP_TESTS_MASTER_SMALL_MODEL_H_
#define SWAMP_TESTS_MASTER_SMALL_MODEL_H_

#include "float_lists.h"
#include "swamp/mixed_precision.h"

namespace swamp::test {

// SmallModel has 16-bit parameters and, every third, one of float32.
class SmallModel {
 public:
  explicit SmallModel(ScalarType type,
                      const std::vector<std::size_t>& counts = kListCounts)
      : counts_(counts),
        weights_(type, counts),
        gradients_(type, counts),
        float_weights_(kFloat32, counts),
        float_gradients_(kFloat32, counts) {
    Random random(23);
    weights_.fill_values(1, random);
    float_weights_.fill_values(1, random);
  }

  static bool is_16_bit(std::size_t parameter) { return parameter % 3 != 2; }

  // set_gradients() draws those of a micro batch; they depend on the seed only.
  void set_gradients(std::uint64_t seed, double magnitude = 1) {
    Random random(seed);
    gradients_.fill_values(magnitude, random);
    float_gradients_.fill_values(magnitude, random);
  }
  // plant() makes one element of a gradient infinite, or the largest finite
  // one.
  void plant(std::size_t parameter, std::size_t index, bool finite = false) {
    const Tensor gradient = parameters()[parameter].gradient;
    const Format& format = format_of(gradient.dtype);
    store_bits(format, gradient.data, index,
               format.infinity() - (finite ? 1 : 0));
  }

  std::vector<ModelParameter> parameters() {
    std::vector<ModelParameter> all;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      FormatList& weights = is_16_bit(i) ? weights_ : float_weights_;
      FormatList& gradients = is_16_bit(i) ? gradients_ : float_gradients_;
      all.push_back({"p" + std::to_string(i), weights.tensors()[i],
                     gradients.tensors()[i]});
    }
    return all;
  }
  bool same_weights(const SmallModel& other) const {
    return weights_ == other.weights_ && float_weights_ == other.float_weights_;
  }

 private:
  std::vector<std::size_t> counts_;
  FormatList weights_, gradients_, float_weights_, float_gradients_;
};

inline MixedPrecisionOptions small_options(ScalarType type) {
  MixedPrecisionOptions options;
  options.fp16 = type == kFloat16;
  options.bf16 = type == kBFloat16;
  options.initial_loss_scale = 1024;
  options.hysteresis = 1;
  options.loss_scale_window = 3;
  AdamWOptions adam;
  adam.lr = 0.01;
  options.optimizer = adam;
  return options;
}

inline MixedPrecisionOptions sharded_options(ScalarType type,
                                             Communicator& ranks) {
  MixedPrecisionOptions options = small_options(type);
  options.communicator = &ranks;
  options.shard = true;
  return options;
}

// Trainer is a small model and its optimizer.
struct Trainer {
  explicit Trainer(const MixedPrecisionOptions& options)
      : model(options.bf16 ? kBFloat16 : kFloat16),
        optimizer({{model.parameters(), {}, {}}}, options) {}
  // steps() plants an inf in every fourth of them.
  void steps(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) {
      model.set_gradients(step);
      if (step % 4 == 3) model.plant(4, 0);
      optimizer.step();
    }
  }
  SmallModel model;
  MixedPrecisionOptimizer optimizer;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_SMALL_MODEL_H_
