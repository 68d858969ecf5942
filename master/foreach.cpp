#include "swamp/foreach.h"

#include <cmath>
#include <string>
#include <vector>

#include "master/foreach.h"
#include "master/launch.h"
#include "master/text.h"

namespace swamp {

using master::OperandList;
using master::OperationTable;
using master::OptimizerLists;
using master::PreparedStep;

void foreach_cast_(TensorList out, TensorList in, float divisor,
                   Machine* machine) {
  const slave::CastArgs args{divisor};
  const OperandList lists[] = {{"in", in}, {"out", out}};
  master::run_operations(
      lists, master::operations_of<KernelFamily::cast, 2>(args), machine);
}

void foreach_accumulate_(TensorList sum, TensorList in, float divisor,
                         Machine* machine) {
  const slave::AccumulateArgs args{divisor};
  const OperandList lists[] = {{"in", in}, {"sum", sum}};
  master::run_operations(
      lists, master::operations_of<KernelFamily::accumulate, 2>(args), machine);
}

void foreach_lerp_(TensorList out, TensorList in, double weight,
                   Machine* machine) {
  // torch's lerp starts from the nearer end.
  const auto factor = static_cast<float>(weight);
  const bool is_small = std::abs(factor) < 0.5f;
  const slave::LerpArgs args{is_small ? factor : factor - 1,
                             is_small ? 0u : 1u};
  const OperandList lists[] = {{"in", in}, {"out", out}};
  master::run_operations(
      lists, master::operations_of<KernelFamily::lerp, 2>(args), machine);
}

void foreach_zero_(TensorList tensors, Machine* machine) {
  const slave::ZeroArgs args{};
  const OperandList list{"tensors", tensors};
  master::run_operations(
      &list, master::operations_of<KernelFamily::zero, 1>(args), machine);
}

double foreach_norm(TensorList tensors, float inv_scale, float* found_inf,
                    OverflowReport* report, Machine* machine) {
  double sum = 0;
  const runtime::SlaveResult result = master::run_norm(
      tensors, inv_scale, [&](double grain) { sum += grain; }, machine);
  if (found_inf != nullptr && result.flagged_elements != 0) *found_inf = 1.0f;
  if (report != nullptr) *report = master::overflow_report(result);
  return std::sqrt(sum);
}

void foreach_squares(TensorList tensors, float inv_scale,
                     std::size_t grain_blocks, std::vector<double>& squares,
                     float* found_inf, Machine* machine) {
  if (grain_blocks == 0) {
    master::refuse("grain_blocks", "0", "a number of at least 1");
  }
  const runtime::SlaveResult result = master::run_norm(
      tensors, inv_scale, [&](double grain) { squares.push_back(grain); },
      machine, grain_blocks);
  if (found_inf != nullptr && result.flagged_elements != 0) *found_inf = 1.0f;
}

std::uint64_t foreach_count_zeros(TensorList tensors, Machine* machine) {
  const slave::CountZerosArgs args{};
  const OperandList list{"tensors", tensors};
  return master::run_operations(
             &list, master::operations_of<KernelFamily::count_zeros, 1>(args),
             machine)
      .flagged_elements;
}

float clip_coefficient(double max_norm, double norm) noexcept {
  if (!(max_norm > 0)) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1 ? static_cast<float>(coefficient) : 1;
}

namespace {

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

// step_operations() returns the operations of a step with kMoments moments,
// with or without a model's weight.
template <KernelFamily kFamily, int kMoments, class Args>
OperationTable step_operations(const Args& args, bool with_model) {
  return with_model ? master::operations_of<kFamily, 3 + kMoments>(args)
                    : master::operations_of<kFamily, 2 + kMoments>(args);
}

constexpr char kLargestName[] = "max_exp_avg_sqs";

void require_empty(TensorList list, const char* name, const char* reason) {
  if (list.count() == 0) return;
  master::refuse(name, "a list of " + std::to_string(list.count()) + " tensors",
                 std::string("an empty one, ") + reason);
}

}  // namespace

void PreparedStep::prepare(const OptimizerLists& lists, const SgdStep& step,
                           float inv_scale, Machine* machine) {
  const bool with_momentum = step.momentum != 0;
  const TensorList buffers = lists.states[0];
  if (!with_momentum) {
    require_empty(buffers, lists.momentum_name, "because the momentum is 0");
  }
  sgd_args_ = sgd_args(step, inv_scale);
  sign_ = step.maximize ? -1.0f : 1.0f;
  const bool with_model = lists.model_params.count() != 0;
  operations_ = with_momentum ? step_operations<KernelFamily::sgd_momentum, 1>(
                                    sgd_args_, with_model)
                              : step_operations<KernelFamily::sgd, 0>(
                                    sgd_args_, with_model);
  OperandList operand_lists[4] = {{"gradients", lists.gradients},
                                  {lists.params_name, lists.params}};
  int count = 2;
  if (with_momentum) operand_lists[count++] = {lists.momentum_name, buffers};
  if (with_model) operand_lists[count++] = {"model_params", lists.model_params};
  make_segments(operand_lists, machine);
}

void PreparedStep::prepare(const OptimizerLists& lists, const AdamStep& step,
                           float inv_scale, Machine* machine) {
  if (!is_step(step.step)) {
    master::refuse("step", std::to_string(step.step), kStepRange);
  }
  const TensorList largest = lists.states[2];
  if (!step.amsgrad) {
    require_empty(largest, kLargestName, "because amsgrad is false");
  }
  adam_args_ = adam_args(step, inv_scale);
  sign_ = step.maximize ? -1.0f : 1.0f;
  const bool with_model = lists.model_params.count() != 0;
  operations_ = step.amsgrad ? step_operations<KernelFamily::adam_amsgrad, 3>(
                                   adam_args_, with_model)
                             : step_operations<KernelFamily::adam, 2>(
                                   adam_args_, with_model);
  OperandList operand_lists[6] = {{"gradients", lists.gradients},
                                  {lists.params_name, lists.params},
                                  {"exp_avgs", lists.states[0]},
                                  {"exp_avg_sqs", lists.states[1]}};
  int count = 4;
  if (step.amsgrad) operand_lists[count++] = {kLargestName, largest};
  if (with_model) operand_lists[count++] = {"model_params", lists.model_params};
  make_segments(operand_lists, machine);
}

void PreparedStep::make_segments(const OperandList* lists, Machine* machine) {
  machine_ = &master::impl_of(machine);
  list_ = master::make_segments(
      lists, operations_, false,
      master::Workspace::of_this_thread().prepared_segments());
}

void PreparedStep::run(float clip_coefficient) {
  adam_args_.clip_coefficient = sign_ * clip_coefficient;
  sgd_args_.clip_coefficient = sign_ * clip_coefficient;
  master::Workspace::of_this_thread().run(*machine_, list_);
}

void foreach_sgd_(TensorList params, TensorList gradients,
                  TensorList momentum_buffers, TensorList model_params,
                  const SgdStep& step, const StepScaling& scaling,
                  Machine* machine) {
  PreparedStep prepared;
  prepared.prepare({params, gradients, {momentum_buffers}, model_params}, step,
                   scaling.inv_scale, machine);
  prepared.run(scaling.clip_coefficient);
}

void foreach_adam_(TensorList params, TensorList gradients, TensorList exp_avgs,
                   TensorList exp_avg_sqs, TensorList model_params,
                   const AdamStep& step, const StepScaling& scaling,
                   Machine* machine) {
  PreparedStep prepared;
  prepared.prepare({params,
                    gradients,
                    {exp_avgs, exp_avg_sqs, step.max_exp_avg_sqs},
                    model_params},
                   step, scaling.inv_scale, machine);
  prepared.run(scaling.clip_coefficient);
}

}  // namespace swamp
