#ifndef SWAMP_MASTER_CLI_TRAINER_H_
#define SWAMP_MASTER_CLI_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "master/cli/adam.h"
#include "master/cli/loss_scale.h"
#include "master/cli/model.h"
#include "master/cli/step_record.h"
#include "master/cli/text_data.h"
#include "master/cli/train_options.h"
#include "swamp/swamp.h"

namespace swamp::cli {

// Trainer is the training job: model, optimizer, loss scale and data. The same
// options and text give the same bits on every machine of swamp.
class Trainer {
 public:
  // `text` and `machine` must outlive the trainer.
  Trainer(const TrainOptions& options, const std::string& text,
          Machine& machine);

  StepRecord step();

  const Model& model() const noexcept { return model_; }
  float scale() const noexcept { return scale_.scale(); }
  double unscale_seconds() const noexcept { return unscale_seconds_; }
  // weights_digest() is FNV-1a of the master weights' bits.
  std::uint64_t weights_digest();

 private:
  // unscale() divides all gradients by the scale and looks for inf/nan, in one
  // call of swamp.
  void unscale(StepRecord& record);

  std::size_t batch_count_;
  const std::string& text_;
  Machine& machine_;
  Random random_;
  Model model_;
  Adam adam_;
  LossScale scale_;
  Batch batch_;
  std::vector<Tensor> gradients_;
  std::uint64_t steps_ = 0;
  double unscale_seconds_ = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAINER_H_
