// The arithmetic that the rules share, the table of all scalers, and an update.
#include "master/scaler/scaler.h"

#include <algorithm>
#include <cmath>

#include "runtime/fork_cancel.h"
#include "swamp/loss_scaler.h"

namespace swamp::scaler {
namespace {

const std::vector<Preset>& table() {
  static runtime::MadeOnce<const std::vector<Preset>> all;
  return all.get([] {
    std::vector<Preset> presets;
    for (auto* part : {torch_presets, megatron_presets, tensorflow_presets,
                       mindspore_presets, deepspeed_presets, fairseq_presets,
                       swamp_presets}) {
      for (Preset& preset : part()) presets.push_back(std::move(preset));
    }
    return presets;
  });
}

}  // namespace

void round_scale(Scaler& scaler) {
  if (scaler.float_rule != FloatRule::exact) {
    scaler.scale = to_float32(scaler.scale);
  }
}

double times(const Scaler& scaler, double factor) {
  switch (scaler.float_rule) {
    case FloatRule::round_once:
      return to_float32(scaler.scale * factor);
    case FloatRule::round_factor:
    case FloatRule::round_reciprocal:
      return static_cast<double>(static_cast<float>(scaler.scale) *
                                 static_cast<float>(factor));
    case FloatRule::exact:
      break;
  }
  return scaler.scale * factor;
}

double divided_by(const Scaler& scaler, double factor) {
  if (scaler.float_rule == FloatRule::exact) {
    if (factor == 0.0) {
      raise(scaler, "ZeroDivisionError", "float division by zero");
    }
    return scaler.scale / factor;
  }
  const auto scale = static_cast<float>(scaler.scale);
  const auto divisor = static_cast<float>(factor);
  if (scaler.float_rule == FloatRule::round_reciprocal) {
    const float reciprocal = 1.0f / divisor;
    return static_cast<double>(scale * reciprocal);
  }
  return static_cast<double>(scale / divisor);
}

void grow(Scaler& scaler, double factor) {
  const double grown = times(scaler, factor);
  switch (scaler.guard) {
    case GrowthGuard::none:
      break;
    case GrowthGuard::finite:
      if (!std::isfinite(grown)) return;
      break;
    case GrowthGuard::below_3e38:
      if (!(scaler.scale < to_float32(3.4e38 / factor))) return;
      break;
  }
  scaler.scale = grown;
}

bool is_overflow(const Scaler& scaler, float found_inf) {
  switch (scaler.overflow_test) {
    case OverflowTest::non_zero:
      break;
    case OverflowTest::at_least_one:
      return found_inf >= 1.0f;
    case OverflowTest::equal_to_one:
      return found_inf == 1.0f;
  }
  return found_inf != 0.0f;  // nan counts as found
}

double modulo(const Scaler& scaler, double value, double divisor) {
  if (divisor == 0.0) {
    raise(scaler, "ZeroDivisionError", "integer modulo by zero");
  }
  return std::fmod(value, divisor);
}

void raise(const Scaler& scaler, const char* type, const std::string& message,
           const std::string& detail) {
  throw ScalerError(scaler.name, type, message, detail);
}

void update_constant(Scaler&, float) {}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : table()) names.emplace_back(preset.name);
  std::sort(names.begin(), names.end());
  return names;
}

const Preset& find_preset(const std::string& name) {
  for (const Preset& preset : table()) {
    if (name == preset.name) return preset;
  }
  master::refuse("scaler", "'" + name + "'",
                 "one of " + master::joined(preset_names()));
}

ScalerStep update(const Preset& preset, Scaler& scaler, float found_inf) {
  ScalerStep step;
  step.found_inf = found_inf != 0.0f;
  step.skipped = step.found_inf && scaler.skips != 0.0;
  step.old_scale = scaler.scale;
  scaler.warning.clear();
  preset.rule(scaler, found_inf);
  step.new_scale = scaler.scale;
  step.warning = scaler.warning;
  return step;
}

Member setting(const Preset& preset, const std::string& name) {
  for (const Option& option : preset.options) {
    if (name != option.name) continue;
    for (const Key& key : preset.keys) {
      if (key.member == option.member) return key.member;
    }
  }
  return nullptr;
}

}  // namespace swamp::scaler
