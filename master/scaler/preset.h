// A scaler is a row of a table: its rule, and where its numbers come from, what
// is shown of its state, and what its checkpoint keeps.
#ifndef SWAMP_MASTER_SCALER_PRESET_H_
#define SWAMP_MASTER_SCALER_PRESET_H_

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "master/scaler/scaler.h"
#include "swamp/loss_scaler.h"

namespace swamp::scaler {

using Member = double Scaler::*;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Kind { real, integer, boolean };

// Option is a constructor argument of the original.
struct Option {
  const char* name;
  Member member;
  double preset;           // the original's default
  double none = kNan;      // what null means; nan: it is refused
  Kind kind = Kind::real;  // boolean: true and false; else any number
};

// Tracker is a counter beside the scale.
struct Tracker {
  const char* name;
  Member member;
  bool integer = true;
};

// Key is one of the original's state_dict(), as a JSON pointer.
struct Key {
  const char* pointer;
  Member member;
  Kind kind = Kind::real;
  // What a checkpoint that is not swamp's sets instead; nan: its own value.
  double foreign = kNan;
};

// Prepare checks the options as the original's constructor, and makes what is
// not a plain copy of an option.
using Prepare = void (*)(const ScalerOptions&, Scaler&);

struct Preset {
  const char* name;
  Rule rule;
  FloatRule float_rule;
  GrowthGuard guard;
  OverflowTest overflow_test;
  std::vector<Option> options;
  std::vector<Tracker> trackers;
  std::vector<Key> keys;
  Prepare prepare;
};

// find_preset() throws Error, with all names, for one that is not there.
const Preset& find_preset(const std::string& name);
std::vector<std::string> preset_names();

std::vector<Preset> torch_presets();       // presets_torch.cpp
std::vector<Preset> megatron_presets();    // presets_megatron.cpp
std::vector<Preset> tensorflow_presets();  // presets_tensorflow.cpp
std::vector<Preset> mindspore_presets();   // presets_mindspore.cpp
std::vector<Preset> host_presets();        // presets_host.cpp
std::vector<Preset> swamp_presets();       // presets_swamp.cpp

// The window list of MindFormers' adaptive cell. presets_mindspore.cpp
std::vector<double> mindformers_windows(double max, double min);

// make_scaler() is the state of a new scaler. options.cpp
Scaler make_scaler(const Preset& preset, const ScalerOptions& options);
// python_text() is how Python prints a value: 0.5, 4.0, 1e-05, inf.
std::string python_text(const ScalerValue& value);
std::string python_text(double value);
// option_text() is python_text() of a given option, else of its preset.
std::string option_text(const ScalerOptions& options, const char* name,
                        double preset);
// require() raises the original's exception unless `good`.
void require(bool good, const Scaler& scaler, const char* type,
             const std::string& message, const std::string& detail);

// The two ways of JSON; a scale is read as it is written. json.cpp
std::string write_state(const Preset& preset, const Scaler& scaler);
void read_state(const Preset& preset, const std::string& json, Scaler& scaler);

}  // namespace swamp::scaler

#endif  // SWAMP_MASTER_SCALER_PRESET_H_
