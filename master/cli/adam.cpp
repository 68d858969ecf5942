#include "master/cli/adam.h"

#include <cmath>

namespace swamp::cli {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr float kEpsilon = 1e-8f;

}  // namespace

void Adam::step(std::vector<Parameter>& parameters) {
  moments_.resize(parameters.size());
  beta1_power_ *= kBeta1;
  beta2_power_ *= kBeta2;
  const auto step_size = static_cast<float>(lr_ / (1.0 - beta1_power_));
  const auto root_correction =
      static_cast<float>(std::sqrt(1.0 - beta2_power_));
  constexpr auto kKeep1 = static_cast<float>(kBeta1);
  constexpr auto kKeep2 = static_cast<float>(kBeta2);
  constexpr auto kTake1 = static_cast<float>(1.0 - kBeta1);
  constexpr auto kTake2 = static_cast<float>(1.0 - kBeta2);

  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::vector<float>& master = parameters[p].master;
    const std::vector<float>& gradient = parameters[p].gradient.values;
    Moments& moments = moments_[p];
    moments.first.resize(master.size());
    moments.second.resize(master.size());
    for (std::size_t i = 0; i < master.size(); ++i) {
      const float g = gradient[i];
      float& m = moments.first[i];
      float& v = moments.second[i];
      m = kKeep1 * m + kTake1 * g;
      v = kKeep2 * v + kTake2 * g * g;
      master[i] -= step_size * m / (std::sqrt(v) / root_correction + kEpsilon);
    }
  }
}

}  // namespace swamp::cli
