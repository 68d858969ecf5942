#include "master/cli/loss_scale.h"

#include <fmt/format.h>

#include <cmath>

#include "master/cli/command.h"
#include "swamp/amp.h"

namespace swamp::cli {

LossScale::LossScale(const TrainOptions& options) noexcept
    : dynamic_(options.dynamic_scale),
      scale_(static_cast<float>(options.scale)),
      window_(options.scale_window) {}

float LossScale::inverse() const {
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(scale_));
  if (!std::isfinite(inverse)) {
    throw Failure(fmt::format(
        "training has diverged: gradients overflow even at loss scale {}",
        scale_text(scale_)));
  }
  return inverse;
}

void LossScale::update(float found_inf) noexcept {
  if (!dynamic_) return;
  amp_update_scale_(scale_, growth_tracker_, found_inf, 2.0, 0.5, window_);
}

std::string scale_text(float scale) {
  int exponent = 0;
  if (std::frexp(scale, &exponent) == 0.5f) {
    return fmt::format("2^{}", exponent - 1);
  }
  return fmt::to_string(scale);
}

}  // namespace swamp::cli
