#include "master/cli/summary.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "master/cli/train_log.h"

namespace swamp::cli {

Summary::Summary(const History& history) {
  for (std::size_t i = 0; i < history.steps(); ++i) {
    underflow_ += history.underflow(i);
    activation_underflow_ += history.activation_underflow(i);
    add_loss(i + 1, history.loss(i), history.skipped(i));
  }
}

void Summary::add_loss(std::uint64_t step, double loss, bool skipped) {
  // A scale that is too large spoils gradients only: a loss that is not finite
  // is always the weights' fault, whether the step is skipped or taken.
  const bool finite = std::isfinite(loss);
  if (finite) {
    diverged_from_ = 0;
  } else if (diverged_from_ == 0) {
    diverged_from_ = step;
  }
  if (skipped) {
    ++skipped_;
    return;
  }
  if (!finite && diverged_taken_++ == 0) diverged_first_ = step;
  last_losses_.push_back(loss);
  if (last_losses_.size() > kFinalSteps) last_losses_.pop_front();
}

std::string Summary::final_loss_line() const {
  const std::size_t count = last_losses_.size();
  if (count == 0) return "final loss none: every step was skipped\n";
  const double sum =
      std::accumulate(last_losses_.begin(), last_losses_.end(), 0.0);
  return fmt::format("final loss {} (mean of the last {} step{} taken)\n",
                     loss_text(sum / static_cast<double>(count)), count,
                     count == 1 ? "" : "s");
}

std::string Summary::loss_lines() const {
  std::string text = final_loss_line();
  if (diverged_from_ != 0) {
    text += fmt::format("the loss was not finite from step {} on\n",
                        diverged_from_);
  } else if (diverged_taken_ != 0) {
    text += fmt::format(
        "the loss was not finite in {} step{} taken, first in step {}\n",
        diverged_taken_, diverged_taken_ == 1 ? "" : "s", diverged_first_);
  }
  return text;
}

}  // namespace swamp::cli
