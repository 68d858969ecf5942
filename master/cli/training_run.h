#ifndef SWAMP_MASTER_CLI_TRAINING_RUN_H_
#define SWAMP_MASTER_CLI_TRAINING_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "master/cli/console.h"
#include "master/cli/history.h"
#include "master/cli/ranks.h"
#include "master/cli/train_log.h"
#include "master/cli/train_options.h"
#include "master/cli/trainer.h"

namespace swamp::cli {

// TrainingRun is one run of the program: files and stdout are the first rank's.
class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, Machine& machine, Ranks& ranks)
      : options_(options), machine_(machine), ranks_(ranks) {}

  // run() returns the signal that has ended the run before its last step, or 0.
  int run();

 private:
  void prepare();
  void check_files();
  std::uint64_t summed_apart();
  void resume();
  void say(const std::string& text);
  std::string header();
  int train();
  int step();
  void save();
  void close(double seconds);
  void plot();

  TrainOptions options_;
  Machine& machine_;
  Ranks& ranks_;
  std::string text_;
  std::optional<Trainer> trainer_;
  std::optional<StepLog> log_;
  History history_;
  std::uint64_t skipped_ = 0;
  std::string resume_note_;
  Progress progress_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAINING_RUN_H_
