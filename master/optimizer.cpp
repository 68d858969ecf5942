#include "swamp/optimizer.h"

#include <utility>

#include "swamp/error.h"

namespace swamp {

Optimizer::~Optimizer() = default;

std::string Optimizer::gradient_name(std::size_t) const { return ""; }

FunctionOptimizer::FunctionOptimizer(TensorList gradients,
                                     std::function<void()> step,
                                     std::vector<std::string> names)
    : gradients_(gradients.begin(), gradients.end()),
      step_(std::move(step)),
      names_(std::move(names)) {
  if (!step_) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "FunctionOptimizer: step: got an empty function, expected one "
                "that can be called");
  }
  if (!names_.empty() && names_.size() != gradients_.size()) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "FunctionOptimizer: names: got " +
                    std::to_string(names_.size()) + ", expected none or " +
                    std::to_string(gradients_.size()) + ", one a gradient");
  }
}

FunctionOptimizer::~FunctionOptimizer() = default;

TensorList FunctionOptimizer::gradients() { return gradients_; }

std::string FunctionOptimizer::gradient_name(std::size_t index) const {
  return index < names_.size() ? names_[index] : "";
}

void FunctionOptimizer::step() { step_(); }

}  // namespace swamp
