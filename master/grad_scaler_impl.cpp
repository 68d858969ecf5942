// The checks and the state that a GradScaler's calls share.
#include "master/grad_scaler_impl.h"

#include <cmath>
#include <limits>

namespace swamp {

void raise_protocol(const char* type, const std::string& message,
                    const std::string& detail) {
  throw ScalerError("GradScaler", type, message, detail);
}

void GradScaler::Impl::check_range(const scaler::Scaler& scaler, double scale) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (scaler.float_rule == scaler::FloatRule::exact || !std::isfinite(scale) ||
      std::fabs(scale) <= kMax) {
    return;
  }
  raise_protocol("RuntimeError",
                 "value cannot be converted to type float without overflow",
                 "scale: got " + scaler::python_text(scale));
}

void GradScaler::Impl::set_scale(double new_scale) {
  check_range(state(), new_scale);
  state().scale = new_scale;
  scaler::round_scale(state());
}

void GradScaler::Impl::init_scale() {
  if (scaled) return;
  set_scale(state().scale);
  scaled = true;
}

void GradScaler::Impl::check_scaled(const std::string& call) {
  if (scaled) return;
  raise_protocol("AssertionError",
                 "Attempted " + call +
                     " but _scale is None.  This may indicate your script did "
                     "not use scaler.scale(loss or outputs) earlier in the "
                     "iteration.");
}

GradScaler::Impl::Entry GradScaler::Impl::entry_of(const Optimizer& optimizer) {
  Entry& entry = entries[&optimizer];
  if (entry == nullptr) entry = std::make_shared<PerOptimizer>();
  return entry;
}

std::optional<float> GradScaler::Impl::found_inf_of_all() const {
  std::optional<float> sum;
  for (const auto& [optimizer, entry] : entries) {
    if (entry->found_inf) sum = sum.value_or(0.0f) + *entry->found_inf;
  }
  return sum;
}

double& GradScaler::Impl::setting(const std::string& name) {
  const scaler::Member member = scaler::setting(preset(), name);
  if (member != nullptr) return state().*member;
  throw Error(SWAMP_UNSUPPORTED, "GradScaler: " + name + " of " + rule.name() +
                                     ": its original cannot change it, "
                                     "expected a scaler that can, as "
                                     "torch.amp.GradScaler");
}

double GradScaler::Impl::get(const std::string& name) {
  if (!enabled) {
    raise_protocol("AttributeError",
                   "'GradScaler' object has no attribute '_" + name + "'");
  }
  const std::lock_guard<std::mutex> lock(mutex);
  return setting(name);
}

void GradScaler::Impl::set(const std::string& name, double value) {
  if (!enabled) return;
  const std::lock_guard<std::mutex> lock(mutex);
  setting(name) = value;
}

}  // namespace swamp
