#include "swamp/loss_scaler.h"

#include <utility>

#include "master/scaler/scaler.h"

namespace swamp {
namespace {

std::string error_text(const std::string& scaler, const std::string& type,
                       const std::string& message, const std::string& detail) {
  std::string text = scaler + ": " + type;
  if (!message.empty()) text += ": " + message;
  if (!detail.empty()) text += " (" + detail + ")";
  return text;
}

// The words of the enums, in their order.
constexpr const char* kPolicies[] = {"clamp", "warn", "error"};
constexpr const char* kRefills[] = {"growth", "clean"};

template <class Enum, std::size_t kCount>
std::string word(const char* name, Enum value,
                 const char* const (&words)[kCount]) {
  const auto index = static_cast<std::size_t>(value);
  if (index < kCount) return words[index];
  master::refuse(std::string("swamp.LossScaler: ") + name,
                 std::to_string(static_cast<int>(value)),
                 "a value of its enum, below " + std::to_string(kCount));
}

ScalerOptions by_name(const LossScalerOptions& options) {
  return {
      {"init_scale", options.init_scale},
      {"growth_factor", options.growth_factor},
      {"backoff_factor", options.backoff_factor},
      {"growth_interval", options.growth_interval},
      {"min_scale", options.min_scale},
      {"max_scale", options.max_scale},
      {"stop_before_inf", options.stop_before_inf},
      {"hysteresis", options.hysteresis},
      {"hysteresis_refill",
       word("hysteresis_refill", options.hysteresis_refill, kRefills)},
      {"window_list", options.window_list},
      {"max_overflows", options.max_overflows},
      {"policy", word("policy", options.policy, kPolicies)},
  };
}

}  // namespace

ScalerError::ScalerError(const std::string& scaler, const std::string& type,
                         const std::string& message, const std::string& detail)
    : Error(SWAMP_INVALID_ARGUMENT, error_text(scaler, type, message, detail)),
      type_(type),
      message_(message) {}

LossScaler::LossScaler(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)) {}
LossScaler::LossScaler(const LossScalerOptions& options)
    : LossScaler(from_name("swamp.LossScaler", by_name(options))) {}
LossScaler::LossScaler(LossScaler&& other) noexcept = default;
LossScaler& LossScaler::operator=(LossScaler&& other) noexcept = default;
LossScaler::~LossScaler() = default;

LossScaler LossScaler::from_name(const std::string& name,
                                 const ScalerOptions& options) {
  const scaler::Preset& preset = scaler::find_preset(name);
  return LossScaler(std::unique_ptr<Impl>(
      new Impl{preset, scaler::make_scaler(preset, options)}));
}

std::vector<std::string> LossScaler::names() { return scaler::preset_names(); }

const std::string& LossScaler::name() const noexcept {
  return impl_->scaler.name;
}

double LossScaler::scale() const noexcept { return impl_->scaler.scale; }

float LossScaler::inv_scale() const noexcept {
  return static_cast<float>(1.0 / impl_->scaler.scale);
}

ScalerStep LossScaler::update(float found_inf) {
  return scaler::update(impl_->preset, impl_->scaler, found_inf);
}

std::vector<std::string> LossScaler::tracker_names() const {
  std::vector<std::string> names;
  for (const scaler::Tracker& tracker : impl_->preset.trackers) {
    names.emplace_back(tracker.name);
  }
  return names;
}

std::vector<double> LossScaler::trackers() const {
  std::vector<double> values;
  for (const scaler::Tracker& tracker : impl_->preset.trackers) {
    values.push_back(impl_->scaler.*tracker.member);
  }
  return values;
}

bool LossScaler::tracker_is_integer(std::size_t index) const {
  return impl_->preset.trackers.at(index).integer;
}

std::string LossScaler::state_dict() const {
  return scaler::write_state(impl_->preset, impl_->scaler);
}

void LossScaler::load_state_dict(const std::string& json) {
  scaler::read_state(impl_->preset, json, impl_->scaler);
  scaler::round_scale(impl_->scaler);
}

}  // namespace swamp
