// The table of all scalers.
#include <algorithm>

#include "master/scaler/preset.h"

namespace swamp::scaler {
namespace {

// table() is never destroyed: a scaler may outlive the statics of a program.
const std::vector<Preset>& table() {
  static const std::vector<Preset>* const all = [] {
    auto* presets = new std::vector<Preset>;
    for (auto* part : {torch_presets, megatron_presets, tensorflow_presets,
                       mindspore_presets, host_presets, swamp_presets}) {
      for (Preset& preset : part()) presets->push_back(std::move(preset));
    }
    return presets;
  }();
  return *all;
}

}  // namespace

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
  std::string text = "scaler: got '" + name + "', expected one of";
  const char* comma = " ";
  for (const std::string& known : preset_names()) {
    text += comma + known;
    comma = ", ";
  }
  throw Error(SWAMP_INVALID_ARGUMENT, text);
}

}  // namespace swamp::scaler
