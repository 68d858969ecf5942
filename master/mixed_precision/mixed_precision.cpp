#include "swamp/mixed_precision.h"

#include <new>
#include <stdexcept>
#include <utility>

#include "master/mixed_precision/impl.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp {
namespace {

// TimerScope runs one of Megatron's timers.
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

// LossScaleScope ends in what get_loss_scale() says.
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

// or_out_of_memory() makes an Error of what the standard library throws.
template <class Call>
decltype(auto) or_out_of_memory(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw Error(SWAMP_OUT_OF_MEMORY,
              "cannot allocate the arrays of a mixed-precision optimizer");
}

}  // namespace

MixedPrecisionOptimizer::MixedPrecisionOptimizer(
    std::vector<ParameterGroup> groups, const MixedPrecisionOptions& options)
    : impl_(or_out_of_memory([&] {
        return std::make_unique<Impl>(std::move(groups), options);
      })) {}

MixedPrecisionOptimizer::~MixedPrecisionOptimizer() = default;

float MixedPrecisionOptimizer::scale_loss(float loss) const noexcept {
  return loss * static_cast<float>(get_loss_scale());
}

double MixedPrecisionOptimizer::get_loss_scale() const noexcept {
  return impl_->loss_scale.load(std::memory_order_relaxed);
}

const LossScaler* MixedPrecisionOptimizer::loss_scaler() const noexcept {
  return impl_->scaler ? &*impl_->scaler : nullptr;
}

std::int64_t MixedPrecisionOptimizer::step_count() const noexcept {
  return impl_->steps;
}

void MixedPrecisionOptimizer::accumulate_gradients() {
  Impl& impl = *impl_;
  const std::int64_t micro_batches = impl.options.micro_batches;
  if (micro_batches == 1 || impl.accumulated == micro_batches) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "accumulate_gradients(): called after " +
                    std::to_string(impl.accumulated) +
                    " micro batches; expected step(), micro_batches is " +
                    std::to_string(micro_batches));
  }
  const bool last = impl.accumulated + 1 == micro_batches;
  const bool divide = last && impl.options.reduction == GradientReduction::mean;
  impl.accumulate(divide ? static_cast<float>(micro_batches) : 1);
  ++impl.accumulated;
}

StepResult MixedPrecisionOptimizer::step() {
  return or_out_of_memory([&] { return impl_->step(); });
}

StepResult MixedPrecisionOptimizer::Impl::step() {
  StepObserver* observer = options.observer;
  const std::int64_t micro_batches = options.micro_batches;
  if (micro_batches != 1 && accumulated != micro_batches) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "step(): called after " + std::to_string(accumulated) +
                    " accumulate_gradients(); expected micro_batches, " +
                    std::to_string(micro_batches));
  }
  StepResult result;
  result.loss_scale = result.next_loss_scale = loss_scale;
  {
    const TimerScope timer(observer, "optimizer-copy-to-main-grad");
    copy_model_grads_to_main_grads();
  }
  if (scaler) {
    bool found_inf;
    {
      const TimerScope timer(observer, "optimizer-unscale-and-check-inf");
      found_inf = unscale_and_check(result);
    }
    ScalerStep update;
    {
      // Also where the rule throws it may have moved the scale.
      const LossScaleScope scope(*this);
      update = scaler->update(found_inf ? 1.0f : 0.0f);
    }
    result.warning = update.warning;
    result.next_loss_scale = loss_scale;
    event(found_inf ? "grad_scaler.update(True)" : "grad_scaler.update(False)");
    if (update.skipped) return result;
  }
  {
    const TimerScope timer(observer, "optimizer-clip-main-grad");
    result.grad_norm = options.clip_grad > 0 ? clip_grad_norm() : 0.0;
  }
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

void MixedPrecisionOptimizer::reload_model_params() {
  foreach_cast_(impl_->masters, impl_->rounded_masters, 1,
                impl_->options.machine);
}

namespace {

void require_group(std::size_t group, std::size_t count) {
  if (group < count) return;
  throw Error(SWAMP_INVALID_ARGUMENT, "group: " + std::to_string(group) +
                                          "; expected less than " +
                                          std::to_string(count));
}

}  // namespace

void MixedPrecisionOptimizer::set_lr(std::size_t group, double lr) {
  require_group(group, impl_->groups.size());
  master::InnerOptions options = impl_->groups[group];
  master::lr_of(options) = lr;
  master::check_inner_options(options, "");
  impl_->groups[group] = options;
}

double MixedPrecisionOptimizer::lr(std::size_t group) const {
  require_group(group, impl_->groups.size());
  return master::lr_of(impl_->groups[group]);
}

}  // namespace swamp
