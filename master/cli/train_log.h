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

// Summary adds up the steps of a run.
class Summary {
 public:
  void add(const StepRecord& record);

  // final_loss() is the mean over the last steps taken; nan if there was none.
  double final_loss() const;
  std::size_t final_steps() const noexcept { return last_losses_.size(); }
  std::uint64_t skipped() const noexcept { return skipped_; }
  std::uint64_t underflow() const noexcept { return underflow_; }

 private:
  static constexpr std::size_t kFinalSteps = 20;

  std::deque<double> last_losses_;
  std::uint64_t skipped_ = 0;
  std::uint64_t underflow_ = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_LOG_H_
