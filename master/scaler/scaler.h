// A loss scaler is a Scaler (the values of its options, and its state) and a
// Preset: a row that names the rule, a function that updates the state, and
// describes options, trackers and checkpoint keys. The file of a family
// (torch.cpp, megatron.cpp, ...) has its rules and its rows.
#ifndef SWAMP_MASTER_SCALER_SCALER_H_
#define SWAMP_MASTER_SCALER_SCALER_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "master/text.h"
#include "swamp/loss_scaler.h"

namespace swamp::scaler {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// FloatRule is how a system computes scale * factor. The results differ for
// every factor that is not a power of two.
enum class FloatRule {
  // f32(double(scale) * double(factor)): torch's kernels
  round_once,
  // f32(scale * f32(factor)): systems that hold the factor as float32
  round_factor,
  // as round_factor, but a decrease multiplies by f32(1 / f32(factor)):
  // MindSpore's cells
  round_reciprocal,
  // double, not rounded: Python floats
  exact
};

// The condition that a grown scale must meet; otherwise it stays.
enum class GrowthGuard {
  none,
  finite,      // the grown scale must be finite
  below_3e38,  // scale < f32(3.4e38 / factor): Ascend's TensorFlow adapters
};

// OverflowTest is the values of found_inf that a system treats as an overflow.
enum class OverflowTest { non_zero, at_least_one, equal_to_one };

// Scaler is the options and the state of one scaler. All fields are double,
// counts too, so that the tables of options, trackers and checkpoint keys can
// hold member pointers, and a fractional interval keeps its value.
struct Scaler {
  std::string name;

  // Traits of the system, from its row.
  FloatRule float_rule = FloatRule::round_factor;
  GrowthGuard guard = GrowthGuard::none;
  OverflowTest overflow_test = OverflowTest::non_zero;

  // Values of the options.
  double initial_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  double growth_interval = 2000.0;
  double min_scale = -kInfinity;
  double max_scale = kInfinity;
  double hysteresis = 1.0;
  double decrease_interval = 1.0;  // overflows before a decrease
  double tolerance = 0.0;
  double threshold = -kInfinity;
  double min_window = 0.0;
  double max_window = 0.0;
  double constant_scale = 0.0;  // 0: dynamic
  double dynamic = 1.0;
  double consecutive = 0.0;   // DeepSpeed's consecutive_hysteresis
  double raise_at_min = 0.0;  // DeepSpeed's raise_error_at_min_scale
  double refill_on_clean = 0.0;
  double policy = 0.0;  // a ScalerPolicy
  double max_overflows = 0.0;
  double skips = 1.0;    // an overflow skips the optimizer's step
  std::string min_text;  // min_scale as Python prints it
  std::vector<double> window_list;

  // State.
  double scale = 65536.0;
  double good_steps = 0.0;  // clean steps since the last change
  double bad_steps = 0.0;   // overflows since the last change
  double hysteresis_left = 1.0;
  double iteration = 0.0;
  double last_overflow = 0.0;
  double last_rescale = 0.0;
  double window = 0.0;  // growth interval, if it changes
  double list_index = 0.0;
  double up_count = 0.0;
  double down_count = 0.0;
  std::string warning;  // of this update
};

inline double to_float32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

// round_scale() rounds the scale to the type in which the system keeps it.
void round_scale(Scaler& scaler);

// scale * factor with the rounding of the system.
double times(const Scaler& scaler, double factor);
// scale / factor, for the systems that divide.
double divided_by(const Scaler& scaler, double factor);
// grow() multiplies the scale, unless the guard forbids it.
void grow(Scaler& scaler, double factor);
bool is_overflow(const Scaler& scaler, float found_inf);

// Python's %, for numbers that are not negative.
double modulo(const Scaler& scaler, double value, double divisor);

// raise() throws the exception of the original.
[[noreturn]] void raise(const Scaler& scaler, const char* type,
                        const std::string& message,
                        const std::string& detail = "");

using Rule = void (*)(Scaler&, float found_inf);

// Rules that more than one file names.
void update_constant(Scaler&, float);     // never changes the scale
void update_jmp(Scaler&, float);          // tensorflow.cpp
void update_mindformers(Scaler&, float);  // mindspore.cpp

using Member = double Scaler::*;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Kind { real, integer, boolean };

// Option is a constructor argument of the original.
struct Option {
  const char* name;
  Member member;
  double preset;           // the original's default
  double none = kNan;      // the value of null; nan: null is refused
  Kind kind = Kind::real;  // boolean: true or false; else any number
};

// Tracker is a counter that users may read.
struct Tracker {
  const char* name;
  Member member;
  bool integer = true;
};

// Key is an entry of the original's state_dict(), as a JSON pointer.
struct Key {
  const char* pointer;
  Member member;
  Kind kind = Kind::real;
  // The value that loading the original's checkpoint sets; nan: the value
  // there.
  double foreign = kNan;
};

// Prepare checks the options as the original's constructor does, and sets what
// is not a plain copy of an option.
using Prepare = void (*)(const ScalerOptions&, Scaler&);
inline void prepare_nothing(const ScalerOptions&, Scaler&) {}

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

// find_preset() throws Error, with the list of all names, for an unknown name.
const Preset& find_preset(const std::string& name);
std::vector<std::string> preset_names();

// The rows of one family, each in the file of its name.
std::vector<Preset> torch_presets();
std::vector<Preset> megatron_presets();
std::vector<Preset> tensorflow_presets();
std::vector<Preset> mindspore_presets();
std::vector<Preset> deepspeed_presets();
std::vector<Preset> fairseq_presets();
std::vector<Preset> swamp_presets();

// The window list of MindFormers' adaptive cell. mindspore.cpp
std::vector<double> mindformers_windows(double max, double min);

// make_scaler() returns a new scaler. preset_options.cpp
Scaler make_scaler(const Preset& preset, const ScalerOptions& options);
// python_text() formats a value as Python does: 0.5, 4.0, 1e-05, inf.
std::string python_text(const ScalerValue& value);
using master::python_text;
// refuse_unknown() throws Error unless a row, Preset or Recipe, has all of the
// options.
template <class Row>
void refuse_unknown(const Row& row, const ScalerOptions& options) {
  std::vector<std::string> names;
  for (const auto& option : row.options) names.emplace_back(option.name);
  for (const auto& [name, value] : options) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    master::refuse(row.name, "the option '" + name + "'",
                   names.empty() ? "none" : "one of " + master::joined(names));
  }
}
// option_text() formats a given option, or its default if it is not given.
std::string option_text(const ScalerOptions& options, const char* name,
                        double preset);
// require() raises the original's exception if `good` is false.
void require(bool good, const Scaler& scaler, const char* type,
             const std::string& message, const std::string& detail);

// The state as JSON, and back. json.cpp
std::string write_state(const Preset& preset, const Scaler& scaler);
void read_state(const Preset& preset, const std::string& json, Scaler& scaler);

// update() applies the rule once; see LossScaler::update().
ScalerStep update(const Preset& preset, Scaler& scaler, float found_inf);

// setting() returns the option of that name if it may be changed later, which
// is if the original's load_state_dict() overwrites it; else null.
Member setting(const Preset& preset, const std::string& name);

}  // namespace swamp::scaler

namespace swamp {

struct LossScaler::Impl {
  const scaler::Preset& preset;
  scaler::Scaler scaler;
};

}  // namespace swamp

#endif  // SWAMP_MASTER_SCALER_SCALER_H_
