// Rows of MindSpore and MindFormers.
#include "master/scaler/preset.h"

namespace swamp::scaler {
namespace {

constexpr char kValueError[] = "ValueError";

// The words of MindSpore's checks, which say "> 1" and mean "not below 1".
std::string argument(const ScalerOptions& options, const char* name,
                     double preset, const char* expected) {
  return std::string("The argument '") + name + "' must be " + expected +
         ", but got " + option_text(options, name, preset);
}

void start_at_one(const ScalerOptions&, Scaler& s) { s.iteration = 1; }

// mindspore/train/loss_scale_manager.py, FixedLossScaleManager.__init__().
void prepare_fixed_manager(const ScalerOptions& options, Scaler& s) {
  require(!(s.initial_scale < 1), s, kValueError,
          argument(options, "loss_scale", 128.0, ">= 1"), "");
  s.skips = s.dynamic;  // drop_overflow_update
}

// What the two dynamic scalers of the host check alike; their names and
// defaults differ.
void require_dynamic(const ScalerOptions& options, const Scaler& s,
                     const char* scale_name, double scale, double window) {
  require(!(s.initial_scale < 1), s, kValueError,
          argument(options, scale_name, scale, "> 1"), "");
  require(s.growth_factor > 0, s, kValueError,
          argument(options, "scale_factor", 2.0, "> 0"), "");
  require(s.growth_interval > 0, s, kValueError,
          argument(options, "scale_window", window, "> 0"), "");
}

// The same file, DynamicLossScaleManager.__init__().
void prepare_manager(const ScalerOptions& options, Scaler& s) {
  require_dynamic(options, s, "init_loss_scale", 16777216.0, 2000.0);
  s.iteration = 1;
}

// mindspore/amp.py, DynamicLossScaler.__init__().
void prepare_amp(const ScalerOptions& options, Scaler& s) {
  require_dynamic(options, s, "scale_value", 65536.0, 1000.0);
  s.min_scale = 1.0;
}

void require_integer(const ScalerOptions& options, const Scaler& s,
                     const char* name) {
  const auto given = options.find(name);
  require(given == options.end() ||
              std::holds_alternative<std::int64_t>(given->second),
          s, "TypeError",
          std::string(name) + " should be a int, but got <class 'float'>", "");
}

// mindformers/wrapper/adaptive_loss_scale.py: the ranges before the types.
void prepare_mindformers(const ScalerOptions& options, Scaler& s) {
  require(s.max_window > 0 && s.min_window > 0 && s.max_window > s.min_window,
          s, kValueError,
          "`max_scale_window` and `min_scale_window` have to be floats > 0 and "
          "`max_scale_window` has to be larger than `min_scale_window`",
          "max_scale_window: got " + python_text(s.max_window) +
              ", min_scale_window: got " + python_text(s.min_window));
  require_integer(options, s, "max_scale_window");
  require_integer(options, s, "min_scale_window");
  s.window_list = mindformers_windows(s.max_window, s.min_window);
  // A window that is not in the list means the first.
  s.list_index = 0;
  for (std::size_t i = 0; i < s.window_list.size(); ++i) {
    if (s.window_list[i] != s.growth_interval) continue;
    s.list_index = static_cast<double>(i);
    break;
  }
  s.window = s.window_list[static_cast<std::size_t>(s.list_index)];
  s.iteration = 1;
}

std::vector<Key> cell_keys(std::vector<Key> more = {}) {
  std::vector<Key> all = {
      {"/scale_sense", &Scaler::scale},
      {"/current_iterator_step", &Scaler::iteration, Kind::integer},
      {"/last_overflow_iterator_step", &Scaler::last_overflow, Kind::integer}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Option> cell_options(std::vector<Option> more = {}) {
  std::vector<Option> all = {
      {"loss_scale_value", &Scaler::initial_scale, 65536.0},
      {"scale_factor", &Scaler::growth_factor, 2.0},
      {"scale_window", &Scaler::growth_interval, 1000.0}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Tracker> cell_trackers(std::vector<Tracker> more = {}) {
  std::vector<Tracker> all = {{"cur_iter", &Scaler::iteration},
                              {"last_overflow_iter", &Scaler::last_overflow}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void prepare_nothing(const ScalerOptions&, Scaler&) {}

}  // namespace

// mindformers_windows() is _get_window_list(max, min, 100, 2) of MindFormers,
// its surprises included: a maximum of 101..199 gives [0, max].
std::vector<double> mindformers_windows(double max, double min) {
  constexpr double kInterval = 100;
  constexpr double kFactor = 2;
  std::vector<double> reversed = {max};
  while (max > min) {
    if (max > kInterval) {
      max = std::trunc(max / kFactor / kInterval) * kInterval;
    } else if (max == kInterval) {
      max = 50.0;
    } else {
      max -= min / kFactor;
    }
    reversed.push_back(std::trunc(max));
  }
  return {reversed.rbegin(), reversed.rend()};
}

std::vector<Preset> mindspore_presets() {
  constexpr GrowthGuard none = GrowthGuard::none;
  constexpr OverflowTest test = OverflowTest::non_zero;
  return {
      {"mindspore.FixedLossScaleUpdateCell",
       update_constant,
       FloatRule::b,
       none,
       test,
       {{"loss_scale_value", &Scaler::initial_scale, 65536.0}},
       {},
       {},
       prepare_nothing},
      {"mindspore.FixedLossScaleManager",
       update_constant,
       FloatRule::d,
       none,
       test,
       {{"loss_scale", &Scaler::initial_scale, 128.0},
        {"drop_overflow_update", &Scaler::dynamic, 1.0, kNan, Kind::boolean}},
       {},
       {},
       prepare_fixed_manager},
      {"mindspore.DynamicLossScaleUpdateCell", update_mindspore_cell,
       FloatRule::c, none, test, cell_options(), cell_trackers(), cell_keys(),
       start_at_one},
      {"mindspore.DynamicLossScaleManager",
       update_mindspore_manager,
       FloatRule::d,
       none,
       test,
       {{"init_loss_scale", &Scaler::initial_scale, 16777216.0},
        {"scale_factor", &Scaler::growth_factor, 2.0},
        {"scale_window", &Scaler::growth_interval, 2000.0}},
       cell_trackers({{"bad_step", &Scaler::bad_steps}}),
       {{"/loss_scale", &Scaler::scale},
        {"/cur_iter", &Scaler::iteration, Kind::integer},
        {"/last_overflow_iter", &Scaler::last_overflow, Kind::integer},
        {"/bad_step", &Scaler::bad_steps, Kind::integer}},
       prepare_manager},
      {"mindspore.amp.DynamicLossScaler",
       update_jmp,
       FloatRule::b,
       GrowthGuard::finite,
       test,
       {{"scale_value", &Scaler::initial_scale, 65536.0},
        {"scale_factor", &Scaler::growth_factor, 2.0},
        {"scale_window", &Scaler::growth_interval, 1000.0}},
       {{"counter", &Scaler::good_steps}},
       {{"/scale_value", &Scaler::scale},
        {"/counter", &Scaler::good_steps, Kind::integer}},
       prepare_amp},
      {"mindformers.AdaptiveLossScaleUpdateCell", update_mindformers,
       FloatRule::c, none, test,
       cell_options({{"max_scale_window", &Scaler::max_window, 1000.0},
                     {"min_scale_window", &Scaler::min_window, 20.0}}),
       cell_trackers({{"scale_window", &Scaler::window},
                      {"list_index", &Scaler::list_index},
                      {"window_up_count", &Scaler::up_count},
                      {"window_down_count", &Scaler::down_count}}),
       cell_keys({{"/scale_window", &Scaler::window, Kind::integer},
                  {"/list_index", &Scaler::list_index, Kind::integer},
                  {"/window_up_count", &Scaler::up_count, Kind::integer},
                  {"/window_down_count", &Scaler::down_count, Kind::integer}}),
       prepare_mindformers},
  };
}

}  // namespace swamp::scaler
