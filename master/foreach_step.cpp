// The steps of the optimizers over lists of tensors.
#include <cmath>
#include <string>

#include "master/looking_step.h"
#include "master/operation_run.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp {
namespace {

using master::OperandList;
using master::OperationTable;

slave::AdamArgs adam_args(const AdamStep& step, float inv_scale) {
  const auto steps = static_cast<double>(step.step);
  slave::AdamArgs args{};
  args.inv_scale = inv_scale;
  args.one_minus_beta1 = static_cast<float>(1 - step.beta1);
  args.beta2 = static_cast<float>(step.beta2);
  args.one_minus_beta2 = static_cast<float>(1 - step.beta2);
  args.step_size =
      static_cast<float>(step.lr / (1 - std::pow(step.beta1, steps)));
  args.bias_correction2_sqrt =
      static_cast<float>(std::sqrt(1 - std::pow(step.beta2, steps)));
  args.eps = static_cast<float>(step.eps);
  args.weight_decay =
      step.decoupled ? 0 : static_cast<float>(step.weight_decay);
  args.decay =
      step.decoupled ? static_cast<float>(1 - step.lr * step.weight_decay) : 1;
  return args;
}

slave::SgdArgs sgd_args(const SgdStep& step, float inv_scale) {
  slave::SgdArgs args{};
  args.inv_scale = inv_scale;
  args.lr = static_cast<float>(step.lr);
  args.momentum = static_cast<float>(step.momentum);
  args.one_minus_dampening = static_cast<float>(1 - step.dampening);
  args.weight_decay = static_cast<float>(step.weight_decay);
  args.nesterov = step.nesterov;
  args.first_step = step.first;
  return args;
}

// Known is what needs no look.
struct Known final : master::StepLook {
  explicit Known(float given) : clip(given) {}
  bool look(float& clip_coefficient) override {
    clip_coefficient = clip;
    return true;
  }
  float clip;
};

// run_step() runs a table, all operations of which have `args`, once it has
// looked.
template <class Args>
void run_step(const OperandList* lists, const OperationTable& operations,
              Args& args, master::StepLook& look, Machine* machine) {
  Machine::Impl& impl = master::impl_of(machine);
  master::Road& road = master::Road::of_this_thread();
  const master::SegmentList list =
      master::make_segments(lists, operations, false, road.waiting_memory());
  if (!look.look(args.clip_coefficient)) return;
  road.run(impl, list);
}

// step_operations() has the operations of a step with `kMoments` moments, with
// or without a model's weight.
template <KernelFamily kFamily, int kMoments, class Args>
OperationTable step_operations(const Args& args, bool with_model) {
  return with_model ? master::operations_of<kFamily, 3 + kMoments>(args)
                    : master::operations_of<kFamily, 2 + kMoments>(args);
}

}  // namespace

void foreach_sgd_(TensorList params, TensorList gradients,
                  TensorList momentum_buffers, TensorList model_params,
                  const SgdStep& step, const StepScaling& scaling,
                  Machine* machine) {
  Known known(scaling.clip_coefficient);
  master::sgd_step_({params, gradients, {momentum_buffers, {}}, model_params},
                    step, scaling.inv_scale, known, machine);
}

void foreach_adam_(TensorList params, TensorList gradients, TensorList exp_avgs,
                   TensorList exp_avg_sqs, TensorList model_params,
                   const AdamStep& step, const StepScaling& scaling,
                   Machine* machine) {
  Known known(scaling.clip_coefficient);
  master::adam_step_({params, gradients, {exp_avgs, exp_avg_sqs}, model_params},
                     step, scaling.inv_scale, known, machine);
}

void master::sgd_step_(const OptimizerLists& lists, const SgdStep& step,
                       float inv_scale, StepLook& look, Machine* machine) {
  slave::SgdArgs args = sgd_args(step, inv_scale);
  const bool with_momentum = step.momentum != 0;
  const TensorList buffers = lists.states[0];
  if (!with_momentum && buffers.count() != 0) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                std::string(lists.momentum_name) + ": a list of " +
                    std::to_string(buffers.count()) +
                    " tensors; expected none without a momentum");
  }
  const bool with_model = lists.model_params.count() != 0;
  const OperationTable operations =
      with_momentum
          ? step_operations<KernelFamily::sgd_momentum, 1>(args, with_model)
          : step_operations<KernelFamily::sgd, 0>(args, with_model);
  OperandList operand_lists[4] = {{"gradients", lists.gradients},
                                  {lists.params_name, lists.params}};
  int count = 2;
  if (with_momentum) operand_lists[count++] = {lists.momentum_name, buffers};
  if (with_model) operand_lists[count++] = {"model_params", lists.model_params};
  run_step(operand_lists, operations, args, look, machine);
}

void master::adam_step_(const OptimizerLists& lists, const AdamStep& step,
                        float inv_scale, StepLook& look, Machine* machine) {
  slave::AdamArgs args = adam_args(step, inv_scale);
  const bool with_model = lists.model_params.count() != 0;
  const OperationTable operations =
      step_operations<KernelFamily::adam, 2>(args, with_model);
  const OperandList operand_lists[] = {{"gradients", lists.gradients},
                                       {lists.params_name, lists.params},
                                       {"exp_avgs", lists.states[0]},
                                       {"exp_avg_sqs", lists.states[1]},
                                       {"model_params", lists.model_params}};
  run_step(operand_lists, operations, args, look, machine);
}

}  // namespace swamp
