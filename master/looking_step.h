// A step of an optimizer that looks at the gradients between validating its
// lists and writing to them.
#ifndef SWAMP_MASTER_LOOKING_STEP_H_
#define SWAMP_MASTER_LOOKING_STEP_H_

#include <cstdint>

#include "swamp/foreach.h"

namespace swamp::master {

// is_step() returns whether a step, counted from 1, is exact as a double, which
// the bias corrections take.
inline bool is_step(std::int64_t step) {
  return step >= 1 && step < std::int64_t{1} << 53;
}
inline constexpr char kStepRange[] =
    "a whole number from 1, the first step, to 2^53 - 1";

// OptimizerLists is what a step moves; names are those in messages.
struct OptimizerLists {
  TensorList params;
  TensorList gradients;
  TensorList states[2];  // moments; SGD's momentum is the first
  TensorList model_params;
  const char* params_name = "params";
  const char* momentum_name = "momentum_buffers";
};

// StepLook is asked, once the lists are known to be good, for the factor of the
// unscaled gradients; false: no step. It may run other lists.
class StepLook {
 public:
  virtual bool look(float& clip_coefficient) = 0;

 protected:
  ~StepLook() = default;
};

// adam_step_() and sgd_step_() are foreach_adam_() and foreach_sgd_() that look
// at the gradients first.
void adam_step_(const OptimizerLists& lists, const AdamStep& step,
                float inv_scale, StepLook& look, Machine* machine);
void sgd_step_(const OptimizerLists& lists, const SgdStep& step,
               float inv_scale, StepLook& look, Machine* machine);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_LOOKING_STEP_H_
