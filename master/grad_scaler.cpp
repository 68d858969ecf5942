// The protocol of GradScaler: scale, unscale_, step, update.
#include "swamp/grad_scaler.h"

#include <utility>

#include "master/grad_scaler_impl.h"

namespace swamp {
namespace {

using Lock = std::lock_guard<std::mutex>;

bool holds_float16(TensorList tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype == kFloat16) return true;
  }
  return false;
}

}  // namespace

float GradScaler::scale(float loss) {
  if (!impl_->enabled) return loss;
  const Lock lock(impl_->mutex);
  impl_->init_scale();
  return loss * static_cast<float>(impl_->state().scale);
}

double GradScaler::scale(double loss) {
  if (!impl_->enabled) return loss;
  const Lock lock(impl_->mutex);
  impl_->init_scale();
  return loss * impl_->state().scale;
}

void GradScaler::scale_(TensorList outputs) {
  // PyTorch, too, does not take a loss that is not there for one.
  if (!impl_->enabled || outputs.count() == 0) return;
  float factor = 1.0f;
  {
    const Lock lock(impl_->mutex);
    impl_->init_scale();
    factor = static_cast<float>(impl_->state().scale);
  }
  float found_inf = 0.0f;  // an overflow is seen in the gradients
  amp_foreach_non_finite_check_and_unscale_(outputs, found_inf, factor, nullptr,
                                            impl_->machine);
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!impl_->enabled) return;
  Impl::Entry entry;
  float inv_scale = 1.0f;
  {
    const Lock lock(impl_->mutex);
    impl_->check_scaled("unscale_");
    entry = impl_->entry_of(optimizer);
    if (entry->stage == Impl::Stage::unscaled) {
      raise_protocol("RuntimeError",
                     "unscale_() has already been called on this optimizer "
                     "since the last update().");
    }
    if (entry->stage == Impl::Stage::stepped) {
      raise_protocol("RuntimeError",
                     "unscale_() is being called after step().");
    }
    inv_scale = impl_->rule.inv_scale();
  }

  const TensorList gradients = optimizer.gradients();
  if (!impl_->allow_fp16 && holds_float16(gradients)) {
    raise_protocol("ValueError", "Attempting to unscale FP16 gradients.",
                   "set_allow_fp16(true) allows it");
  }
  float found_inf = 0.0f;
  OverflowReport overflow;
  amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale,
                                            &overflow, impl_->machine);
  {
    // Before what may throw: the gradients are unscaled whatever comes.
    const Lock lock(impl_->mutex);
    entry->stage = Impl::Stage::unscaled;
    entry->overflow = overflow;
  }
  std::string name;
  if (overflow.element_count != 0) {
    name = optimizer.gradient_name(static_cast<std::size_t>(overflow.tensor));
  }
  const bool recorded = gradients.count() != 0 || impl_->reduction;
  if (impl_->reduction) found_inf = impl_->reduction(found_inf);
  const Lock lock(impl_->mutex);
  entry->gradient_name = std::move(name);
  if (recorded) entry->found_inf = found_inf;
}

GradScalerStep GradScaler::step(Optimizer& optimizer) {
  if (!impl_->enabled) {
    optimizer.step();
    const Lock lock(impl_->mutex);
    return impl_->last_step = GradScalerStep();
  }
  Impl::Entry entry;
  {
    const Lock lock(impl_->mutex);
    impl_->check_scaled("step");
    entry = impl_->entry_of(optimizer);
    if (entry->stage == Impl::Stage::stepped) {
      raise_protocol("RuntimeError",
                     "step() has already been called since the last update().");
    }
  }
  if (entry->stage == Impl::Stage::ready) unscale_(optimizer);

  GradScalerStep report;
  {
    const Lock lock(impl_->mutex);
    if (!entry->found_inf) {
      raise_protocol("AssertionError",
                     "No inf checks were recorded for this optimizer.");
    }
    report.found_inf = *entry->found_inf != 0.0f;
    report.skipped = report.found_inf && impl_->state().skips != 0.0;
    report.scale_before = impl_->state().scale;
    report.scale_after = report.scale_before;
    report.overflow = entry->overflow;
    report.gradient_name = entry->gradient_name;
    scaler::Scaler next = impl_->state();
    try {
      report.scale_after =
          scaler::update(impl_->preset(), next,
                         impl_->found_inf_of_all().value_or(*entry->found_inf))
              .new_scale;
    } catch (const ScalerError&) {
      // It is update()'s to throw.
    }
  }
  if (!report.skipped) optimizer.step();
  const Lock lock(impl_->mutex);
  entry->stage = Impl::Stage::stepped;
  return impl_->last_step = report;
}

ScalerStep GradScaler::update() {
  ScalerStep step;
  const Lock lock(impl_->mutex);
  step.old_scale = step.new_scale = 1.0;
  if (!impl_->enabled) return step;
  impl_->check_scaled("update");
  const std::optional<float> found_inf = impl_->found_inf_of_all();
  if (!found_inf) {
    raise_protocol("AssertionError",
                   "No inf checks were recorded prior to update.");
  }
  // Also where the rule throws: the iteration has ended.
  impl_->entries.clear();
  return impl_->rule.update(*found_inf);
}

ScalerStep GradScaler::update(double new_scale) {
  ScalerStep step;
  const Lock lock(impl_->mutex);
  step.old_scale = step.new_scale = 1.0;
  if (!impl_->enabled) return step;
  impl_->check_scaled("update");
  step.old_scale = impl_->state().scale;
  impl_->set_scale(new_scale);
  step.new_scale = impl_->state().scale;
  impl_->entries.clear();
  return step;
}

}  // namespace swamp
