// The steps of the optimizers over lists of tensors.
#include <cmath>
#include <string>

#include "master/looking_step.h"
#include "master/operation_run.h"
#include "slave/kernel_id.h"
#include "slave/optimizer.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp {
namespace {

namespace kernel_id = slave::kernel_id;
using master::OperationTable;
using master::StreamList;

// The kernels of a gradient dtype follow each other at this distance in
// slave/kernels.inc, float16, bfloat16, float32; within it, each step is
// followed by those that also write the model's weight in float16 and bfloat16.
constexpr std::size_t kGradientStride =
    kernel_id::sgd_bfloat16 - kernel_id::sgd_float16;
constexpr ScalarType kGradientTypes[] = {kFloat16, kBFloat16, kFloat32};
constexpr ScalarType kModelTypes[] = {kFloat16, kBFloat16};

// step_table() has the operations of `kernel`, which is that of float16
// gradients and no model weights, for `states` float32 states beside params.
template <class Args>
OperationTable step_table(std::size_t kernel, const Args& args, int states,
                          bool with_model) {
  OperationTable table;
  for (std::size_t g = 0; g < 3; ++g) {
    const auto add = [&](std::size_t offset, const ScalarType* model) {
      const std::size_t row = table.count;
      table.add(kernel + g * kGradientStride + offset, args,
                {{kGradientTypes[g], Access::in}});
      Operation& operation = table.operations[row];
      const auto add_stream = [&](ScalarType type, Access access) {
        table.types[row][operation.stream_count] = type;
        operation.add_stream(master::kScalarTypeBytes[type], access);
      };
      for (int s = 0; s < 1 + states; ++s) add_stream(kFloat32, Access::inout);
      if (model != nullptr) add_stream(*model, Access::out);
    };
    if (!with_model) {
      add(0, nullptr);
    } else {
      for (std::size_t m = 0; m < 2; ++m) add(1 + m, &kModelTypes[m]);
    }
  }
  return table;
}

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
void run_step(const StreamList* streams, const OperationTable& table,
              Args& args, master::StepLook& look, Machine* machine) {
  Machine::Impl& impl = master::impl_of(machine);
  master::Road& road = master::Road::of_this_thread();
  const master::SegmentList list =
      master::make_segments(streams, table, false, road.waiting_memory());
  if (!look.look(args.clip_coefficient)) return;
  road.run(impl, list);
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
  const OperationTable table =
      with_momentum
          ? step_table(kernel_id::sgd_momentum_float16, args, 1, with_model)
          : step_table(kernel_id::sgd_float16, args, 0, with_model);
  StreamList streams[4] = {{"gradients", lists.gradients},
                           {lists.params_name, lists.params}};
  int count = 2;
  if (with_momentum) streams[count++] = {lists.momentum_name, buffers};
  if (with_model) streams[count++] = {"model_params", lists.model_params};
  run_step(streams, table, args, look, machine);
}

void master::adam_step_(const OptimizerLists& lists, const AdamStep& step,
                        float inv_scale, StepLook& look, Machine* machine) {
  slave::AdamArgs args = adam_args(step, inv_scale);
  const bool with_model = lists.model_params.count() != 0;
  const OperationTable table =
      step_table(kernel_id::adam_float16, args, 2, with_model);
  const StreamList streams[] = {{"gradients", lists.gradients},
                                {lists.params_name, lists.params},
                                {"exp_avgs", lists.states[0]},
                                {"exp_avg_sqs", lists.states[1]},
                                {"model_params", lists.model_params}};
  run_step(streams, table, args, look, machine);
}

}  // namespace swamp
