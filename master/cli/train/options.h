#ifndef SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_
#define SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "master/cli/command.h"
#include "master/cli/train/model.h"
#include "swamp/mixed_precision.h"

namespace swamp::cli {

// TrainOptions are the validated options of `swamp train`. An empty file name
// means none.
struct TrainOptions {
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string log;
  std::string checkpoint;
  std::string plot;
  bool resume = false;
  bool overwrite = false;             // an existing checkpoint
  std::uint64_t save_interval = 100;  // steps between two checkpoints
  ModelOptions model;
  std::uint64_t steps = 300;
  std::uint64_t log_interval = 10;
  std::uint64_t seed = 1;
  std::size_t batch = 128;            // examples in a micro batch
  std::size_t accumulate = 1;         // micro batches of a rank in a step
  int timing_log_level = 0;           // of the timers that are printed
  bool barrier_with_l1_time = false;  // ranks wait before timers of level 1
  MixedPrecisionOptions optimizer;
  // The options that decide the bits of a run, by name, as text: a run that is
  // resumed must have the same.
  std::map<std::string, std::string> decisive;
};

// choices() adds to decisive options those that are not used, as "none", if
// they choose which other ones there are: a difference in them is reported
// first.
std::map<std::string, std::string> choices(
    std::map<std::string, std::string> decisive);

// TrainArguments holds the command line.
class TrainArguments {
 public:
  TrainArguments() = default;
  TrainArguments(const TrainArguments&) = delete;
  TrainArguments& operator=(const TrainArguments&) = delete;

  // add_to() adds the options to the command, which must not outlive this.
  void add_to(CLI::App& command);

  // settle() combines the options, by Megatron's rules. Throws UsageError if
  // they contradict each other.
  TrainOptions settle(const CLI::App& command);

 private:
  void add_run(CLI::App& command);
  void add_numbers(CLI::App& command);
  void add_float8(CLI::App& command);
  void add_scale(CLI::App& command);
  void add_optimizer(CLI::App& command);

  void settle_dtype(const CLI::App& command);
  void settle_model(const CLI::App& command);
  void settle_float8(const CLI::App& command);
  void settle_scale(const CLI::App& command);
  void settle_scaler(const CLI::App& command);
  void settle_optimizer(const CLI::App& command);
  void settle_timers(const CLI::App& command) const;
  void settle_files(const CLI::App& command) const;
  void note_decisive();

  TrainOptions options_;
  std::string dtype_;
  bool fp16_ = false;
  bool bf16_ = false;
  bool distributed_optimizer_ = false;
  std::string fp8_format_;
  std::string fp8_recipe_ = "delayed";
  std::string fp4_format_;
  std::string fp4_recipe_ = "nvfp4";
  std::vector<std::string> scaler_options_;  // KEY=VALUE
  std::string optimizer_ = "adamw";
  AdamOptions adam_ = AdamWOptions();
  SgdOptions sgd_{1e-3, 0.9};
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_OPTIONS_H_
