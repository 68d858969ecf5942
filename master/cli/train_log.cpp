#include "master/cli/train_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
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
  std::string text = fmt::format("step {:>{}}  loss {:.4f}  scale {}",
                                 record.step, fmt::formatted_size("{}", steps),
                                 record.loss, scale_text(record.scale));
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

void Summary::add(const StepRecord& record) {
  underflow_ += record.underflow;
  if (record.skipped) {
    ++skipped_;
    return;
  }
  last_losses_.push_back(record.loss);
  if (last_losses_.size() > kFinalSteps) last_losses_.pop_front();
}

double Summary::final_loss() const {
  if (last_losses_.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double sum =
      std::accumulate(last_losses_.begin(), last_losses_.end(), 0.0);
  return sum / static_cast<double>(last_losses_.size());
}

}  // namespace swamp::cli
