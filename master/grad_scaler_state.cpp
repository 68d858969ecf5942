// A GradScaler's making, its numbers, and its checkpoint.
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "master/grad_scaler_impl.h"

namespace swamp {
namespace {

using Lock = std::lock_guard<std::mutex>;

LossScaler torch_rule(const GradScalerOptions& options) {
  // PyTorch checks nothing, and keeps nothing, when not enabled.
  if (!options.enabled) return LossScaler::from_name("torch.amp.GradScaler");
  return LossScaler::from_name("torch.amp.GradScaler",
                               {{"init_scale", options.init_scale},
                                {"growth_factor", options.growth_factor},
                                {"backoff_factor", options.backoff_factor},
                                {"growth_interval", options.growth_interval}});
}

// to_count() is what a number of PyTorch's int means; too large ones saturate.
std::int64_t to_count(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : GradScaler(torch_rule(options), options.enabled) {
  // It becomes a float32 at the first scale().
  impl_->state().scale = impl_->state().initial_scale;
}

GradScaler::GradScaler(LossScaler rule, bool enabled)
    : impl_(std::make_unique<Impl>(std::move(rule), enabled)) {}
GradScaler::GradScaler(GradScaler&& other) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&& other) noexcept = default;
GradScaler::~GradScaler() = default;

double GradScaler::get_scale() const {
  if (!impl_->enabled) return 1.0;
  const Lock lock(impl_->mutex);
  return impl_->state().scale;
}

std::int64_t GradScaler::get_growth_tracker() const {
  if (!impl_->enabled) return 0;
  const Lock lock(impl_->mutex);
  for (const scaler::Tracker& tracker : impl_->preset().trackers) {
    if (tracker.member == &scaler::Scaler::good_steps) {
      return to_count(impl_->state().good_steps);
    }
  }
  throw Error(SWAMP_UNSUPPORTED, "GradScaler: growth_tracker of " +
                                     impl_->rule.name() +
                                     ": it counts no clean updates");
}

bool GradScaler::is_enabled() const noexcept { return impl_->enabled; }

double GradScaler::get_growth_factor() const {
  return impl_->get("growth_factor");
}
double GradScaler::get_backoff_factor() const {
  return impl_->get("backoff_factor");
}
std::int64_t GradScaler::get_growth_interval() const {
  return to_count(impl_->get("growth_interval"));
}
void GradScaler::set_growth_factor(double new_factor) {
  impl_->set("growth_factor", new_factor);
}
void GradScaler::set_backoff_factor(double new_factor) {
  impl_->set("backoff_factor", new_factor);
}
void GradScaler::set_growth_interval(std::int64_t new_interval) {
  impl_->set("growth_interval", static_cast<double>(new_interval));
}

GradScalerStep GradScaler::last_step() const {
  const Lock lock(impl_->mutex);
  return impl_->last_step;
}

std::string GradScaler::state_dict() const {
  if (!impl_->enabled) return "{}";
  scaler::Scaler copy;
  {
    const Lock lock(impl_->mutex);
    copy = impl_->state();
  }
  return scaler::write_state(impl_->preset(), copy);
}

void GradScaler::load_state_dict(const std::string& json) {
  if (!impl_->enabled) return;
  // PyTorch holds what it has loaded as it is until the first scale().
  scaler::Scaler loaded = impl_->state();
  scaler::read_state(impl_->preset(), json, loaded);
  const Lock lock(impl_->mutex);
  if (impl_->scaled) {
    Impl::check_range(loaded, loaded.scale);
    scaler::round_scale(loaded);
  }
  impl_->state() = loaded;
}

void GradScaler::set_allow_fp16(bool allow) { impl_->allow_fp16 = allow; }

void GradScaler::set_found_inf_reduction(
    std::function<float(float)> reduction) {
  impl_->reduction = std::move(reduction);
}

void GradScaler::set_machine(Machine* machine) { impl_->machine = machine; }

}  // namespace swamp
