// A step of an optimizer in two calls: prepare() validates, run() writes.
#ifndef SWAMP_MASTER_FOREACH_H_
#define SWAMP_MASTER_FOREACH_H_

#include <cstddef>
#include <cstdint>
#include <variant>

#include "master/tensor_list.h"
#include "runtime/machine_impl.h"
#include "slave/kernel_args.h"
#include "swamp/foreach.h"

namespace swamp::master {

// is_step() returns whether a step, counted from 1, is exact as a double, which
// the bias corrections take.
inline bool is_step(std::int64_t step) {
  return step >= 1 && step < std::int64_t{1} << 53;
}
inline constexpr char kStepRange[] =
    "a whole number from 1, the first step, to 2^53 - 1";

// step_of() returns step number `step`, from 1, of an optimizer with these
// options.
OptimizerStep step_of(const std::variant<AdamOptions, SgdOptions>& options,
                      std::int64_t step);

// OptimizerLists is what a step reads and writes, and the names in error texts.
struct OptimizerLists {
  TensorList params;
  TensorList gradients;
  TensorList states[3];  // moments: of SGD at most one, of Adam two or three
  TensorList model_params;
  const char* params_name = "params";
  const char* momentum_name = "momentum_buffers";
};

// PreparedStep is a validated step. Between prepare() and run() the thread may
// run other operations, but not prepare another step. The lists' tensors may
// not move until then. It is destroyed by the same thread.
class PreparedStep {
 public:
  PreparedStep() = default;
  ~PreparedStep();
  PreparedStep(const PreparedStep&) = delete;
  PreparedStep& operator=(const PreparedStep&) = delete;

  // prepare() throws Error as foreach_step_() does.
  void prepare(const OptimizerLists& lists, const OptimizerStep& step,
               float inv_scale, Machine* machine);

  // run() takes the step, with this factor of the unscaled gradients.
  void run(float clip_coefficient);

 private:
  void prepare(const OptimizerLists& lists, const AdamStep& step,
               float inv_scale, Machine* machine);
  void prepare(const OptimizerLists& lists, const SgdStep& step,
               float inv_scale, Machine* machine);
  void make_segments(const OperandList* lists, Machine* machine);
  void set_keys(const AdamStep& step);
  void make_blocks(const AdamStep& step, bool with_key);

  slave::AdamArgs adam_args_{};
  slave::AdamBlockArgs* block_args_ = nullptr;  // copies of adam_args_
  std::size_t block_args_count_ = 0;
  float sign_ = 1;  // of the clip coefficient: -1 maximizes
  slave::SgdArgs sgd_args_{};
  OperationTable operations_;
  SegmentList list_;
  Machine::Impl* machine_ = nullptr;
};

}  // namespace swamp::master

#endif  // SWAMP_MASTER_FOREACH_H_
