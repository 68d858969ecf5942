// A step, in Megatron-LM's order: copy and unscale the gradients, exchange
// found_inf between the ranks, update the loss scale, compute the norm of all
// ranks and clip, step, and copy the weights back. Each part is one operation
// on lists.
#include <cmath>
#include <string>

#include "master/foreach.h"
#include "master/launch.h"
#include "master/optim/mixed_precision.h"
#include "master/text.h"
#include "swamp/error.h"
#include "swamp/foreach.h"
#include "swamp/scan.h"

namespace swamp {
namespace {

// Runs one of Megatron's timers for its lifetime.
class TimerScope {
 public:
  TimerScope(StepObserver* observer, const char* timer)
      : observer_(observer), timer_(timer) {
    if (observer_ != nullptr) observer_->start(timer_, 1);
  }
  ~TimerScope() {
    if (observer_ != nullptr) observer_->stop(timer_);
  }
  TimerScope(const TimerScope&) = delete;
  TimerScope& operator=(const TimerScope&) = delete;

 private:
  StepObserver* observer_;
  const char* timer_;
};

// Publishes the loss scale for get_loss_scale() when it ends.
class LossScaleScope {
 public:
  explicit LossScaleScope(MixedPrecisionOptimizer::Impl& impl) : impl_(impl) {}
  ~LossScaleScope() {
    impl_.loss_scale.store(impl_.scaler->scale(), std::memory_order_relaxed);
  }
  LossScaleScope(const LossScaleScope&) = delete;
  LossScaleScope& operator=(const LossScaleScope&) = delete;

 private:
  MixedPrecisionOptimizer::Impl& impl_;
};

}  // namespace

StepResult MixedPrecisionOptimizer::Impl::step() {
  require_same_ranks("step()");
  StepObserver* observer = options.observer;
  const std::int64_t micro_batches = options.micro_batches;
  if (micro_batches != 1 && accumulated != micro_batches) {
    master::refuse("step()",
                   "a call after " + std::to_string(accumulated) +
                       " accumulate_gradients()",
                   "micro_batches, which is " + std::to_string(micro_batches));
  }
  StepResult result;
  result.loss_scale = result.next_loss_scale = loss_scale;
  {
    const TimerScope timer(observer, "optimizer-copy-to-main-grad");
    copy_model_grads_to_main_grads();
  }
  const bool clips_first = scaler && options.clip_rule == ClipRule::mindspore;
  const auto clip = [&] {
    const TimerScope timer(observer, "optimizer-clip-main-grad");
    result.grad_norm = options.clip_grad > 0 ? clip_grad_norm() : 0.0;
  };
  if (scaler) {
    bool found_inf;
    {
      const TimerScope timer(observer, "optimizer-unscale-and-check-inf");
      found_inf = unscale_and_check(result);
    }
    if (clips_first) clip();
    ScalerStep update;
    {
      // A rule that throws may have changed the scale before.
      const LossScaleScope scope(*this);
      update = scaler->update(found_inf ? 1.0f : 0.0f);
    }
    result.warning = update.warning;
    result.next_loss_scale = loss_scale;
    event(found_inf ? "grad_scaler.update(True)" : "grad_scaler.update(False)");
    if (update.skipped) return result;
  }
  if (!clips_first) clip();
  {
    const TimerScope timer(observer, "optimizer-count-zeros");
    result.num_zeros = options.log_num_zeros_in_grad ? count_zeros() : 0;
  }
  {
    const TimerScope timer(observer, "optimizer-inner-step");
    inner_step();
  }
  {
    const TimerScope timer(observer, "optimizer-copy-main-to-model-params");
    copy_main_params_to_model_params();
  }
  result.success = true;
  return result;
}

// Adds the model's gradients to the sums; the first micro batch sets them.
void MixedPrecisionOptimizer::Impl::accumulate(float divisor) {
  if (accumulated == 0) saturated.clear();
  if (options.saturated_is_overflow) find_saturated();
  if (accumulated == 0) {
    foreach_cast_(gradient_sums, model_gradients, 1, options.machine);
  } else {
    foreach_accumulate_(gradient_sums, model_gradients, divisor,
                        options.machine);
  }
}

void MixedPrecisionOptimizer::Impl::copy_model_grads_to_main_grads() {
  event("_copy_model_grads_to_main_grads");
  if (options.micro_batches == 1) accumulate(1);
  accumulated = 0;
  if (options.shard) reduce_scatter_gradients();
}

bool MixedPrecisionOptimizer::Impl::unscale_and_check(StepResult& result) {
  float found_inf = 0;
  const float inv_scale = scaler->inv_scale();
  if (fused) {
    scaling.inv_scale = inv_scale;
    if (check_fused(result.overflow)) found_inf = 1;
  } else {
    amp_foreach_non_finite_check_and_unscale_(main_gradients, found_inf,
                                              inv_scale, &result.overflow,
                                              options.machine);
  }
  if (options.observer != nullptr) {
    options.observer->event("unscale_and_check(" +
                            std::to_string(main_gradients.size()) + " grads)");
  }
  if (result.overflow.element_count != 0) {
    const master::Slice& slice = slices[result.overflow.tensor].slice;
    result.overflow_rank =
        options.shard ? overflowing_rank(result.overflow) : communicator.rank();
    result.overflow.tensor = slice.parameter;
    result.overflow.index += slice.begin;
    result.overflow_name = parameters[slice.parameter].name;
  }
  if (!saturated.empty()) {
    found_inf = 1;
    if (result.overflow_name.empty()) result.overflow_name = saturated;
  }
  found_inf = max_of_ranks(found_inf);
  event("all_reduce(MAX,found_inf)");
  return found_inf > 0;
}

// Finds the first model gradient with the largest float16. A finite element has
// this magnitude if the largest has.
void MixedPrecisionOptimizer::Impl::find_saturated() {
  constexpr double kLargest = 65504;
  std::vector<Tensor> halves;
  std::vector<const std::string*> names;
  for (const ModelParameter& parameter : parameters) {
    if (parameter.gradient.dtype != kFloat16) continue;
    halves.push_back(parameter.gradient);
    names.push_back(&parameter.name);
  }
  std::vector<TensorStatistics> found(halves.size());
  scan_non_finite(halves, found.data(), options.machine);
  for (std::size_t i = 0; i < found.size() && saturated.empty(); ++i) {
    if (found[i].absmax == kLargest) saturated = *names[i];
  }
}

// Also computes the squares of the norm if it is needed, in the same pass.
bool MixedPrecisionOptimizer::Impl::check_fused(OverflowReport& report) {
  if (!(options.clip_grad > 0)) {
    float found_inf = 0;
    amp_foreach_non_finite_check_and_unscale_(main_gradients, found_inf, 1.0f,
                                              &report, options.machine);
    return found_inf != 0;
  }
  report = master::overflow_report(find_squares(scaling.inv_scale));
  return report.element_count != 0;
}

// Computes the sum of squares of each unscaled main gradient, into `squares`.
runtime::SlaveResult MixedPrecisionOptimizer::Impl::find_squares(
    float inv_scale) {
  squares.clear();
  return master::run_norm(
      main_gradients, inv_scale,
      [&](double grain) { squares.push_back(grain); }, options.machine);
}

double MixedPrecisionOptimizer::Impl::clip_grad_norm() {
  event("clip_grad_norm");
  // Without a scaler there was no pass over the gradients before.
  if (!fused || !scaler) find_squares(1.0f);
  // Add the sums of the grains, not of the ranks, in the order of the ranks, so
  // that a sharded model has the same norm as an unsharded one.
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<std::size_t>& bytes = rank_bytes;
  bytes.resize(ranks);
  const std::size_t mine = squares.size() * sizeof(double);
  communicator.all_gather(&mine, sizeof mine, bytes.data());
  std::size_t all_bytes = 0;
  for (const std::size_t b : bytes) all_bytes += b;
  std::vector<double>& all = all_squares;
  all.resize(all_bytes / sizeof(double));
  communicator.all_gather_varied(squares.data(), bytes.data(), all.data());
  double sum = 0;
  for (const double grain : all) sum += grain;
  const double norm = std::sqrt(model_communicator.sum(sum));
  event("all_reduce(SUM,norm^2)");

  const float coefficient =
      clip_coefficient(options.clip_grad, norm, options.clip_rule);
  if (fused) {
    scaling.clip_coefficient = coefficient;
  } else if (coefficient < 1) {
    float ignored = 0;
    amp_foreach_non_finite_check_and_unscale_(
        main_gradients, ignored, coefficient, nullptr, options.machine);
  }
  return norm;
}

std::uint64_t MixedPrecisionOptimizer::Impl::count_zeros() {
  event("count_zeros");
  const std::uint64_t zeros = model_communicator.sum(
      communicator.sum(foreach_count_zeros(main_gradients, options.machine)));
  event("all_reduce(SUM,num_zeros)");
  return zeros;
}

void MixedPrecisionOptimizer::Impl::inner_step() {
  event("inner optimizer.step");
  for (const master::StepLists& lists : step_lists) {
    const auto& states = lists.states;
    master::PreparedStep step;
    step.prepare({lists.params,
                  lists.gradients,
                  {states[0], states[1], states[2]},
                  lists.model_params},
                 master::step_of(groups[lists.group], steps + 1),
                 scaling.inv_scale, options.machine);
    step.run(scaling.clip_coefficient);
  }
  ++steps;
}

void MixedPrecisionOptimizer::Impl::copy_main_params_to_model_params() {
  event("_copy_main_params_to_model_params");
  if (!fused) foreach_cast_(rounded_masters, masters, 1, options.machine);
  if (options.shard) gather_model_params();
}

}  // namespace swamp
