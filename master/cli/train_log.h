// What `swamp train` writes: a JSON line and a line of text for a step, and the
// summary of a run.
#ifndef SWAMP_MASTER_CLI_TRAIN_LOG_H_
#define SWAMP_MASTER_CLI_TRAIN_LOG_H_

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>

#include "master/cli/step_record.h"

namespace swamp::cli {

// StepLog writes one JSON object a step to a file; nothing without a path.
class StepLog {
 public:
  // Throws Failure where the file cannot be opened, or is `text` itself.
  StepLog(const std::string& path, const std::string& text);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // write() flushes, so that a log can be followed; throws Failure.
  void write(const StepRecord& record);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

// step_text() is one line; `steps` sets the width of the first number.
std::string step_text(const StepRecord& record, std::uint64_t steps);

// loss_text() has no sign before a nan: which one it is depends on the CPU.
std::string loss_text(double loss);

// Summary adds up the steps of a run.
class Summary {
 public:
  void add(const StepRecord& record);

  // loss_lines() tells a run that failed from one that went well.
  std::string loss_lines() const;
  std::uint64_t skipped() const noexcept { return skipped_; }
  std::uint64_t underflow() const noexcept { return underflow_; }
  std::uint64_t activation_underflow() const noexcept {
    return activation_underflow_;
  }

 private:
  static constexpr std::size_t kFinalSteps = 20;

  std::string final_loss_line() const;

  std::deque<double> last_losses_;
  // Steps: no loss since was finite (0: the last one was); the first taken
  // whose loss was not finite, and how many there were.
  std::uint64_t diverged_from_ = 0;
  std::uint64_t diverged_first_ = 0;
  std::uint64_t diverged_taken_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t underflow_ = 0;
  std::uint64_t activation_underflow_ = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_LOG_H_
