#ifndef SWAMP_MASTER_CLI_TRAIN_ARGUMENTS_H_
#define SWAMP_MASTER_CLI_TRAIN_ARGUMENTS_H_

#include <map>
#include <string>

#include "master/cli/option_adder.h"
#include "master/cli/train_options.h"

namespace swamp::cli {

// TrainArguments are the options of `swamp train`, as they are given.
class TrainArguments {
 public:
  explicit TrainArguments(CLI::App* train);
  TrainArguments(const TrainArguments&) = delete;
  TrainArguments& operator=(const TrainArguments&) = delete;

  // settle() is what the options mean together; throws UsageError where they
  // contradict each other.
  TrainOptions settle();

 private:
  void add_run();
  void add_numbers();
  void add_scale();
  void add_optimizer();
  void real(const char* name, double& value, double low, double high,
            const char* help);
  void file(const char* name, std::string& value, const char* help);

  bool is_given(const char* name) const { return given_.at(name)->count() > 0; }
  // refuse() throws where `option` is given: it does not go with what was
  // found.
  void refuse(const char* option, const std::string& found,
              const std::string& expected) const;

  void settle_dtype();
  void settle_scale();
  void settle_scaler();
  void settle_optimizer();
  void settle_files() const;
  void note_decisive();

  OptionAdder add_;
  std::map<std::string, CLI::Option*> given_;
  TrainOptions options_;
  std::string dtype_;
  bool fp16_ = false;
  bool bf16_ = false;
  std::string optimizer_ = "adamw";
  AdamOptions adam_ = AdamWOptions();
  double sgd_momentum_ = 0.9;
};

// parse_scaler_option() is the value of KEY=VALUE; throws UsageError.
ScalerValue parse_scaler_option(const std::string& text, std::string& key);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_ARGUMENTS_H_
