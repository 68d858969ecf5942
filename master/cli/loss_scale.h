#ifndef SWAMP_MASTER_CLI_LOSS_SCALE_H_
#define SWAMP_MASTER_CLI_LOSS_SCALE_H_

#include <cstdint>
#include <string>

#include "master/cli/train_options.h"

namespace swamp::cli {

// LossScale is the loss scale of a run: constant, or halved after every
// overflow and doubled after scale_window clean steps.
class LossScale {
 public:
  explicit LossScale(const TrainOptions& options) noexcept;

  float scale() const noexcept { return scale_; }
  // inverse() throws Failure once the scale has become too small to have one:
  // a run that overflows at every scale has diverged.
  float inverse() const;
  void update(float found_inf) noexcept;

 private:
  bool dynamic_;
  float scale_;
  std::int32_t growth_tracker_ = 0;
  std::int64_t window_;
};

// scale_text() is "2^20", or a decimal for what is no power of two.
std::string scale_text(float scale);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_LOSS_SCALE_H_
