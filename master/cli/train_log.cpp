#include "master/cli/train_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/loss_scale.h"

namespace swamp::cli {

StepLog::StepLog(const std::string& path, const std::string& text)
    : path_(path) {
  if (path_.empty()) return;
  std::error_code none;
  if (std::filesystem::equivalent(path_, text, none)) {
    throw Failure(fmt::format(
        "--log: got '{}', the text itself, expected another file", path_));
  }
  file_ = std::fopen(path_.c_str(), "w");
  if (file_ == nullptr) {
    throw Failure(fmt::format("--log: got '{}', expected a writable file: {}",
                              path_, std::strerror(errno)));
  }
}

StepLog::~StepLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void StepLog::write(const StepRecord& record) {
  if (file_ == nullptr) return;
  const std::string line = step_json(record) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() ||
      std::fflush(file_) != 0) {
    throw Failure(
        fmt::format("cannot write to '{}': {}", path_, std::strerror(errno)));
  }
}

std::string step_text(const StepRecord& record, std::uint64_t steps) {
  std::string text =
      fmt::format("step {:>{}}  loss {}  scale {}", record.step,
                  fmt::formatted_size("{}", steps), loss_text(record.loss),
                  scale_text(record.scale));
  if (record.skipped) {
    text += fmt::format(
        "  found_inf {}  skipped  (first in {}[{}], {} element{})",
        record.found_inf, record.overflow_tensor, record.overflow_index,
        record.overflow_elements, record.overflow_elements == 1 ? "" : "s");
  }
  if (record.next_scale != record.scale) {
    text += fmt::format("  next scale {}", scale_text(record.next_scale));
  }
  return text + "\n";
}

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss);
}

void Summary::add(const StepRecord& record) {
  underflow_ += record.underflow;
  activation_underflow_ += record.activation_underflow;
  // A scale that is too large spoils gradients only: a loss that is not finite
  // is always the weights' fault, whether the step is skipped or taken.
  const bool finite = std::isfinite(record.loss);
  if (finite) {
    diverged_from_ = 0;
  } else if (diverged_from_ == 0) {
    diverged_from_ = record.step;
  }
  if (record.skipped) {
    ++skipped_;
    return;
  }
  if (!finite && diverged_taken_++ == 0) diverged_first_ = record.step;
  last_losses_.push_back(record.loss);
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
