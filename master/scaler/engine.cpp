#include "master/scaler/engine.h"

namespace swamp::scaler {

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
