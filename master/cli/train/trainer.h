#ifndef SWAMP_MASTER_CLI_TRAIN_TRAINER_H_
#define SWAMP_MASTER_CLI_TRAIN_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "master/cli/train/log.h"
#include "master/cli/train/model.h"
#include "master/cli/train/options.h"
#include "master/cli/train/ranks.h"
#include "swamp/swamp.h"

namespace swamp::cli {

// TrainerState is all that a trainer needs to continue a run.
struct TrainerState {
  std::uint64_t steps = 0;
  std::uint64_t random = 0;
  std::uint64_t nonfinite_losses = 0;  // in a row
  OptimizerState optimizer;            // without the weights of a float32 model
  std::map<std::string, std::vector<float>> weights;  // of a float32 model
  std::string scales;                                 // Model::scales()
};

// Adds up the seconds of the optimizer's timers.
class Timers : public StepObserver {
 public:
  // `barrier` is null if the ranks need not wait before a timer of level 1.
  explicit Timers(Communicator* barrier) : barrier_(barrier) {}
  void start(const char* timer, int log_level) override {
    if (barrier_ != nullptr && log_level == 1) barrier_->barrier();
    started_[timer] = std::chrono::steady_clock::now();
  }
  void stop(const char* timer) override {
    const auto found = started_.find(timer);
    if (found == started_.end()) return;
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - found->second;
    seconds_[timer] += taken.count();
    started_.erase(found);
  }
  const std::map<std::string, double>& seconds() const noexcept {
    return seconds_;
  }
  void reset() {
    started_.clear();
    seconds_.clear();
  }

 private:
  Communicator* barrier_;
  std::map<std::string, std::chrono::steady_clock::time_point> started_;
  std::map<std::string, double> seconds_;
};

// Trainer is the training job: model, optimizer and data. The same options and
// text give the same bits on every machine of swamp. N ranks with one micro
// batch each give the bits of one rank with N micro batches.
class Trainer {
 public:
  // `text`, `machine` and `ranks` must outlive the trainer.
  Trainer(const TrainOptions& options, const std::string& text,
          Machine& machine, Ranks& ranks);

  // step() throws CommonFailure on all ranks if the run has diverged. `signal`
  // is the one that this rank has received, or 0.
  StepRecord step(int signal);

  // state() and restore() are collective: all ranks call them, with the same
  // state. restore() throws Error for a state of another model.
  TrainerState state() const;
  void restore(const TrainerState& state);

  std::uint64_t steps() const noexcept { return steps_; }
  const Model& model() const noexcept { return model_; }
  double scale() const noexcept { return optimizer_.get_loss_scale(); }
  // scaler_name() is "none" if there is no loss scaler.
  std::string scaler_name() const;
  // Seconds in the optimizer, and in its unscale alone.
  double optimizer_seconds() const;
  double unscale_seconds() const;
  // timers_text() returns the milliseconds a step that each timer took since
  // the last call, of the fastest and the slowest rank, as Megatron prints
  // them. Collective.
  std::string timers_text(std::uint64_t steps);

 private:
  MixedPrecisionOptions optimizer_options(const TrainOptions& options,
                                          Machine& machine);
  void check_scale() const;
  // backward() runs this rank's micro batches. It draws the data of all ranks,
  // so that their random states stay the same.
  void backward(StepRecord& record, std::vector<double>& losses);
  // join() combines the records of all ranks.
  void join(const StepResult& result, const std::vector<double>& losses,
            StepRecord& record);

  std::size_t batch_;
  std::size_t accumulate_;
  const std::string& text_;
  Ranks& ranks_;
  Random random_;
  Model model_;
  std::vector<ModelParameter> tensors_;
  Timers timers_;
  std::map<std::string, double> printed_seconds_;  // until the last call
  MixedPrecisionOptimizer optimizer_;
  Batch examples_;
  std::uint64_t steps_ = 0;
  std::uint64_t nonfinite_losses_ = 0;
};

// weights_digest() is FNV-1a of the float32 weights' bits.
std::uint64_t weights_digest(const Model& model, const TrainerState& state);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_TRAINER_H_
