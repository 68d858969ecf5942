// MindSpore's cells, managers and amp scaler, and MindFormers' adaptive cell.
#include <algorithm>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// cell_step() is the common part of both cells; it returns whether the window
// was full.
bool cell_step(Scaler& s, bool overflow, double window) {
  const bool full = window <= s.iteration - s.last_overflow;
  if (overflow) {
    s.scale = std::max(divided_by(s, s.growth_factor), 1.0);
  } else if (full) {
    s.scale = times(s, s.growth_factor);
  }
  if (overflow || full) s.last_overflow = s.iteration;
  s.iteration += 1;
  return full;
}

// update_mindspore_cell() is mindspore/nn/wrap/loss_scale.py,
// DynamicLossScaleUpdateCell.construct(): at least 1, no cap.
void update_mindspore_cell(Scaler& s, float found_inf) {
  cell_step(s, is_overflow(s, found_inf), s.growth_interval);
}

// update_mindspore_manager() is mindspore/amp (train/loss_scale_manager.py),
// DynamicLossScaleManager.update_loss_scale(), in Python floats.
void update_mindspore_manager(Scaler& s, float found_inf) {
  constexpr double kMaxBadSteps = 1000;
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(s.scale * (1 / s.growth_factor), 1.0);
    s.last_overflow = s.iteration;
    s.bad_steps += 1;
  } else {
    if (modulo(s, s.iteration - s.last_overflow, s.growth_interval) == 0) {
      s.scale *= s.growth_factor;
    }
    s.bad_steps = 0;
  }
  if (s.bad_steps > kMaxBadSteps) {
    raise(s, "RuntimeError",
          "Dynamic loss scale Continuous overflow  " +
              std::to_string(static_cast<long long>(s.bad_steps)) +
              "  times, has exceeded maximum threshold.");
  }
  s.iteration += 1;
}

constexpr char kValueError[] = "ValueError";

// The texts of MindSpore's checks. They say "> 1", but the checks accept 1.
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

// The common checks of the two dynamic scalers of the host, whose names and
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

// mindformers/wrapper/adaptive_loss_scale.py checks ranges before types.
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

}  // namespace

// update_mindformers() is mindformers/wrapper/adaptive_loss_scale.py,
// AdaptiveLossScaleUpdateCell.construct(). Both counters are mod 4; three
// growths select the next window of the list, three overflows the hidden window
// 1, whose index is -1.
void update_mindformers(Scaler& s, float found_inf) {
  const bool overflow = is_overflow(s, found_inf);
  const bool full = cell_step(s, overflow, s.window);
  if (full && !overflow) {
    s.up_count = s.up_count == 3 ? 0 : s.up_count + 1;
    s.down_count = 0;
  }
  const auto last = static_cast<double>(s.window_list.size()) - 1;
  if (s.up_count == 3 && s.list_index != last) {
    s.list_index += 1;
    s.up_count = 0;
    s.window = s.window_list.at(static_cast<std::size_t>(s.list_index));
  }
  if (!overflow) return;
  s.down_count = s.down_count == 3 ? 0 : s.down_count + 1;
  if (s.down_count == 3 && s.list_index > 0) {
    s.window = 1;
    s.list_index = -1;
    s.down_count = 0;
    s.up_count = 0;
  }
}

// mindformers_windows() is _get_window_list(max, min, 100, 2) of MindFormers,
// with its unexpected result [0, max] for a maximum of 101..199.
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
       FloatRule::round_factor,
       none,
       test,
       {{"loss_scale_value", &Scaler::initial_scale, 65536.0}},
       {},
       {},
       prepare_nothing},
      {"mindspore.FixedLossScaleManager",
       update_constant,
       FloatRule::exact,
       none,
       test,
       {{"loss_scale", &Scaler::initial_scale, 128.0},
        {"drop_overflow_update", &Scaler::dynamic, 1.0, kNan, Kind::boolean}},
       {},
       {},
       prepare_fixed_manager},
      {"mindspore.DynamicLossScaleUpdateCell", update_mindspore_cell,
       FloatRule::round_reciprocal, none, test, cell_options(), cell_trackers(),
       cell_keys(), start_at_one},
      {"mindspore.DynamicLossScaleManager",
       update_mindspore_manager,
       FloatRule::exact,
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
       FloatRule::round_factor,
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
       FloatRule::round_reciprocal, none, test,
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
