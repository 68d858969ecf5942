// What `swamp train` writes of a step: a JSON line and a line of text.
#ifndef SWAMP_MASTER_CLI_TRAIN_LOG_H_
#define SWAMP_MASTER_CLI_TRAIN_LOG_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "master/cli/digest.h"
#include "master/cli/step_record.h"

namespace swamp::cli {

// LogPlace is how far a log has come: all its bytes, and their digest.
struct LogPlace {
  std::uint64_t bytes = 0;
  std::uint64_t digest = kDigestStart;
};

// StepLog writes one JSON object a step to a file; without a path it only
// counts.
class StepLog {
 public:
  // Begins a log or, with a place, goes on there: what comes after it in the
  // file is cut off. Throws Failure if the file cannot be opened or is not the
  // log that came to that place.
  explicit StepLog(const std::string& path, const LogPlace& place = {});
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // write() flushes, so that a log can be followed; throws Failure.
  void write(const StepRecord& record);
  // sync() brings all lines to the disk: before a checkpoint that counts them.
  void sync();
  const LogPlace& place() const noexcept { return place_; }

 private:
  void go_on();
  [[noreturn]] void fail() const;

  std::string path_;
  LogPlace place_;
  std::FILE* file_ = nullptr;
};

// step_text() is one line; `steps` sets the width of the first number,
// `skipped` is how many steps were skipped so far. Of several ranks it names
// those of an overflow, which the log does not: it is the same for any number.
std::string step_text(const StepRecord& record, std::uint64_t steps,
                      std::uint64_t skipped, std::size_t ranks);

// loss_text() has no sign before a nan: which one it is depends on the CPU.
std::string loss_text(double loss);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_LOG_H_
