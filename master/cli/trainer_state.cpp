// What a trainer must know to go on: taking it, and putting it back.
#include <fmt/format.h>

#include <cstring>

#include "master/cli/digest.h"
#include "master/cli/trainer.h"

namespace swamp::cli {
namespace {

std::string_view bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

}  // namespace

TrainerState Trainer::state() const {
  TrainerState state;
  state.steps = steps_;
  state.random = random_.state();
  state.nonfinite_losses = nonfinite_losses_;
  state.optimizer = optimizer_.state_dict();
  if (dtype_ != kFloat32) return state;
  for (const ModelParameter& parameter : tensors_) {
    const auto* data = static_cast<const float*>(parameter.data.data);
    state.weights[parameter.name].assign(data, data + parameter.data.count);
  }
  return state;
}

void Trainer::restore(const TrainerState& state) {
  if (dtype_ == kFloat32) {
    for (const ModelParameter& parameter : tensors_) {
      const auto found = state.weights.find(parameter.name);
      if (found == state.weights.end() ||
          found->second.size() != parameter.data.count) {
        throw Failure(fmt::format("weights of {}: expected {} elements",
                                  parameter.name, parameter.data.count));
      }
    }
  }
  optimizer_.load_state_dict(state.optimizer);
  for (const auto& [name, weights] : state.weights) {
    for (const ModelParameter& parameter : tensors_) {
      if (parameter.name != name) continue;
      std::memcpy(parameter.data.data, weights.data(),
                  bytes_of(weights).size());
    }
  }
  model_.widen_weights();
  steps_ = state.steps;
  random_ = Random(state.random);
  nonfinite_losses_ = state.nonfinite_losses;
}

std::uint64_t weights_digest(const Model& model, const TrainerState& state) {
  std::uint64_t digest = kDigestStart;
  for (const char* name : model.parameter_names()) {
    const auto own = state.weights.find(name);
    const std::vector<float>& weights =
        own != state.weights.end() ? own->second
                                   : state.optimizer.tensors.at(fmt::format(
                                         "fp32_from_fp16_params.{}", name));
    digest = add_to_digest(digest, bytes_of(weights));
  }
  return digest;
}

}  // namespace swamp::cli
