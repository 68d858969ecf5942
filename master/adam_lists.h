// The lists of a step of Adam.
#ifndef SWAMP_MASTER_ADAM_LISTS_H_
#define SWAMP_MASTER_ADAM_LISTS_H_

#include "swamp/foreach.h"

namespace swamp::master {

struct AdamLists {
  TensorList params;
  TensorList gradients;
  TensorList exp_avgs;
  TensorList exp_avg_sqs;
  TensorList model_params;
  const char* params_name = "params";  // in messages
};

// AdamLook is asked, once the lists are known to be good, for the factor of the
// unscaled gradients; false: no step. It may run other lists.
class AdamLook {
 public:
  virtual bool look(float& clip_coefficient) = 0;

 protected:
  ~AdamLook() = default;
};

// adam_step_() is foreach_adam_() that looks at the gradients first.
void adam_step_(const AdamLists& lists, const AdamStep& step, float inv_scale,
                AdamLook& look, Machine* machine);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ADAM_LISTS_H_
