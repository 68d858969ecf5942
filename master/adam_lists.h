// The lists of a step of Adam.
#ifndef SWAMP_MASTER_ADAM_LISTS_H_
#define SWAMP_MASTER_ADAM_LISTS_H_

#include "swamp/tensor.h"

namespace swamp::master {

struct AdamLists {
  TensorList params;
  TensorList gradients;
  TensorList exp_avgs;
  TensorList exp_avg_sqs;
  TensorList model_params;
  const char* params_name = "params";  // in messages
};

// check() throws what foreach_adam_() would throw of these lists.
void check(const AdamLists& lists);

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ADAM_LISTS_H_
