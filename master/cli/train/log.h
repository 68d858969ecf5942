// What `swamp train` records of its steps: the log, the lines that it prints,
// the summary, and the picture.
#ifndef SWAMP_MASTER_CLI_TRAIN_LOG_H_
#define SWAMP_MASTER_CLI_TRAIN_LOG_H_

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "master/cli/text.h"

namespace swamp::cli {

// StepRecord is the result of one training step, on all ranks together.
struct StepRecord {
  std::uint64_t step = 0;  // counted from 1
  double loss = 0;         // before the step: the mean of the micro batches
  double scale = 1;        // of this step
  double next_scale = 1;
  double grad_norm = 0;  // before clipping; 0 if the step was skipped
  bool skipped = false;  // inf or nan was found
  // Elements that rounding made 0, in the gradients of the parameters and in
  // those of the activations.
  std::uint64_t underflow = 0;
  std::uint64_t activation_underflow = 0;
  // The first inf or nan; meaningful if overflow_elements > 0.
  std::string overflow_tensor;
  std::uint64_t overflow_index = 0;
  std::uint64_t overflow_elements = 0;
  // The rank that owns its shard, and the first rank whose own gradient had
  // inf/nan there; -1 if none had, because only the sum overflowed.
  int overflow_owner = -1;
  int overflow_rank = -1;
  // The signal that ends the run after this step, received by any rank; or 0.
  int signal = 0;
  std::string warning;  // of the loss scaler; usually ""
};

// History holds the numbers of all steps of a run, for the summary, the picture
// and the checkpoint. A row is loss, scale, gradient norm, skipped, underflow,
// activation underflow; the integers in it are below 2^53.
class History {
 public:
  static constexpr std::size_t kColumns = 6;

  History() = default;
  // From values() of another one.
  explicit History(std::vector<double> values) : values_(std::move(values)) {}

  void add(const StepRecord& record) {
    values_.insert(
        values_.end(),
        {record.loss, record.scale, record.grad_norm,
         record.skipped ? 1.0 : 0.0, static_cast<double>(record.underflow),
         static_cast<double>(record.activation_underflow)});
  }

  std::size_t steps() const noexcept { return values_.size() / kColumns; }
  double loss(std::size_t i) const { return values_[i * kColumns]; }
  double scale(std::size_t i) const { return values_[i * kColumns + 1]; }
  bool skipped(std::size_t i) const { return values_[i * kColumns + 3] != 0; }
  std::uint64_t underflow(std::size_t i) const { return integer(i, 4); }
  std::uint64_t activation_underflow(std::size_t i) const {
    return integer(i, 5);
  }
  const std::vector<double>& values() const noexcept { return values_; }

 private:
  std::uint64_t integer(std::size_t i, std::size_t column) const {
    return static_cast<std::uint64_t>(values_[i * kColumns + column]);
  }

  std::vector<double> values_;
};

// Summary sums up the steps of a run.
class Summary {
 public:
  explicit Summary(const History& history);

  // loss_lines() is the final loss, and whether the loss stayed finite.
  std::string loss_lines() const;
  std::uint64_t skipped() const noexcept { return skipped_; }
  std::uint64_t underflow() const noexcept { return underflow_; }
  std::uint64_t activation_underflow() const noexcept {
    return activation_underflow_;
  }

 private:
  static constexpr std::size_t kFinalSteps = 20;

  void add_loss(std::uint64_t step, double loss, bool skipped);
  std::string final_loss_line() const;

  std::deque<double> last_losses_;
  // The step since which no loss was finite (0: the last one was), the first
  // taken step whose loss was not finite, and the number of such steps.
  std::uint64_t diverged_from_ = 0;
  std::uint64_t diverged_first_ = 0;
  std::uint64_t diverged_taken_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t underflow_ = 0;
  std::uint64_t activation_underflow_ = 0;
};

// LogPlace is the length of a log in bytes, and their digest.
struct LogPlace {
  std::uint64_t bytes = 0;
  std::uint64_t digest = kDigestStart;
};

// StepLog writes one JSON object per step to a file. Without a path it only
// computes its place.
class StepLog {
 public:
  // Begins a log or, with a place, continues there: what follows in the file is
  // cut off. Throws Failure if the file cannot be opened, or if its bytes
  // before the place have another digest.
  explicit StepLog(const std::string& path, const LogPlace& place = {});
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // write() flushes, so that a log can be followed; throws Failure.
  void write(const StepRecord& record);
  // sync() brings all lines to the disk, before a checkpoint that counts them.
  void sync();
  const LogPlace& place() const noexcept { return place_; }

 private:
  void resume();
  [[noreturn]] void fail() const;

  std::string path_;
  LogPlace place_;
  std::FILE* file_ = nullptr;
};

// step_text() is one line if it fits the terminal; `steps` sets the width of
// the first number, `skipped` is the number of steps skipped so far. With
// several ranks it names the ranks of an overflow. The log does not, because it
// is the same for any number of ranks.
std::string step_text(const StepRecord& record, std::uint64_t steps,
                      std::uint64_t skipped, std::size_t ranks);

// loss_text() shows no sign before a nan, because it depends on the CPU.
std::string loss_text(double loss);

// scale_text() is "2^20", or a decimal if the scale is not a power of two.
std::string scale_text(double scale);

// plot_terminal() returns the line of a gnuplot script that selects the format
// of a picture by the suffix of its name: .svg, or .png, which is the default.
// Throws UsageError for any other suffix.
const char* plot_terminal(const std::string& path);

// plot_history() draws loss and scale over the steps with gnuplot, without a
// terminal, and returns an empty text. If gnuplot is missing or fails, it
// writes nothing and returns the reason. Throws Failure if the file cannot be
// written.
std::string plot_history(const std::string& path, const std::string& title,
                         const History& history);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_LOG_H_
