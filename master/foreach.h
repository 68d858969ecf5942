// A step of an optimizer in two calls: prepare() validates, run() writes.
#ifndef SWAMP_MASTER_FOREACH_H_
#define SWAMP_MASTER_FOREACH_H_

#include "master/tensor_list.h"
#include "runtime/machine_impl.h"
#include "slave/kernel_args.h"
#include "swamp/foreach.h"

namespace swamp::master {

// OptimizerLists is what a step reads and writes, and the names in error texts.
struct OptimizerLists {
  TensorList params;
  TensorList gradients;
  TensorList states[2];  // moments; of SGD only the first, if any
  TensorList model_params;
  const char* params_name = "params";
  const char* momentum_name = "momentum_buffers";
};

// PreparedStep is a validated step. Between prepare() and run() the thread may
// run other operations, but not prepare another step. The lists' tensors may
// not move until then.
class PreparedStep {
 public:
  PreparedStep() = default;
  PreparedStep(const PreparedStep&) = delete;
  PreparedStep& operator=(const PreparedStep&) = delete;

  // prepare() throws Error as foreach_adam_() and foreach_sgd_() do.
  void prepare(const OptimizerLists& lists, const AdamStep& step,
               float inv_scale, Machine* machine);
  void prepare(const OptimizerLists& lists, const SgdStep& step,
               float inv_scale, Machine* machine);

  // run() takes the step, with this factor of the unscaled gradients.
  void run(float clip_coefficient);

 private:
  void make_segments(const OperandList* lists, Machine* machine);

  slave::AdamArgs adam_args_{};
  slave::SgdArgs sgd_args_{};
  OperationTable operations_;
  SegmentList list_;
  Machine::Impl* machine_ = nullptr;
};

}  // namespace swamp::master

#endif  // SWAMP_MASTER_FOREACH_H_
