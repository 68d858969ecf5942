#ifndef SWAMP_MASTER_CLI_STEP_RECORD_H_
#define SWAMP_MASTER_CLI_STEP_RECORD_H_

#include <cstdint>
#include <string>

namespace swamp::cli {

// StepRecord is what one training step did, on all ranks together.
struct StepRecord {
  std::uint64_t step = 0;  // counted from 1
  double loss = 0;         // before the step: the mean of the micro batches
  double scale = 1;        // the one used
  double next_scale = 1;
  double grad_norm = 0;  // before clipping; 0 where the step was skipped
  bool skipped = false;  // inf or nan was found
  // Elements that rounding made 0: of the parameters' gradients, and of those
  // of the activations.
  std::uint64_t underflow = 0;
  std::uint64_t activation_underflow = 0;
  // Where the first inf/nan was; meaningful when overflow_elements > 0.
  std::string overflow_tensor;
  std::uint64_t overflow_index = 0;
  std::uint64_t overflow_elements = 0;
  // The rank that owns the shard with it, and the first whose own gradient had
  // inf/nan there; -1 if none had, and only the sum overflowed.
  int overflow_owner = -1;
  int overflow_rank = -1;
  // The signal that ends the run after this step, on whatever rank; else 0.
  int signal = 0;
  std::string warning;  // of the loss scaler; usually ""
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_STEP_RECORD_H_
