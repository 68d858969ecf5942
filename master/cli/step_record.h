#ifndef SWAMP_MASTER_CLI_STEP_RECORD_H_
#define SWAMP_MASTER_CLI_STEP_RECORD_H_

#include <cstdint>
#include <string>

namespace swamp::cli {

// StepRecord is what one training step did.
struct StepRecord {
  std::uint64_t step = 0;  // counted from 1
  double loss = 0;         // before the step
  float scale = 1;         // the one used
  float next_scale = 1;
  float found_inf = 0;
  bool skipped = false;
  // Elements that rounding made 0: of the parameters' gradients, and of those
  // of the activations.
  std::uint64_t underflow = 0;
  std::uint64_t activation_underflow = 0;
  // Where the first inf/nan was; meaningful when overflow_elements > 0.
  std::string overflow_tensor;
  std::uint64_t overflow_index = 0;
  std::uint64_t overflow_elements = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_STEP_RECORD_H_
