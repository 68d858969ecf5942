// swamp's own scaler: the options of the other systems in one rule. Options:
// LossScalerOptions.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"
#include "swamp/loss_scaler.h"

namespace swamp::scaler {
namespace {

constexpr double kWindowSteps = 3;  // growths or overflows that move the window

// apply_policy() handles an overflow with the scale at min_scale, or the last
// of max_overflows, before the state is changed.
void apply_policy(Scaler& s, const std::string& what) {
  switch (static_cast<ScalerPolicy>(static_cast<int>(s.policy))) {
    case ScalerPolicy::clamp:
      return;
    case ScalerPolicy::warn:
      s.warning = what;
      return;
    case ScalerPolicy::error:
      raise(s, "RuntimeError", what);
  }
}

std::string count_text(double count) {
  return std::to_string(static_cast<long long>(count));
}

void check_overflow(Scaler& s) {
  if (s.hysteresis_left <= 1 && s.scale <= s.min_scale) {
    apply_policy(
        s, "overflow at the smallest loss scale, min_scale " + s.min_text);
  }
  const double in_a_row = s.bad_steps + 1;
  if (s.max_overflows > 0 && in_a_row >= s.max_overflows) {
    apply_policy(s, count_text(in_a_row) +
                        " overflows in a row, max_overflows " +
                        count_text(s.max_overflows));
  }
}

void back_off(Scaler& s) {
  s.good_steps = 0;
  s.bad_steps += 1;
  s.hysteresis_left = std::max(s.hysteresis_left - 1, 0.0);
  if (s.hysteresis_left == 0.0) {
    s.scale = std::max(times(s, s.backoff_factor), s.min_scale);
  }
  s.up_count = 0;
  s.down_count += 1;
  if (s.down_count >= kWindowSteps && s.list_index > 0) {
    s.list_index -= 1;
    s.down_count = 0;
  }
}

void grow_within_bounds(Scaler& s) {
  s.good_steps = 0;
  s.hysteresis_left = s.hysteresis;
  const double before = s.scale;
  grow(s, s.growth_factor);
  // max(), because a loaded scale may exceed the bound.
  s.scale = std::min(s.scale, std::max(s.max_scale, before));
  s.down_count = 0;
  s.up_count += 1;
  const auto last = static_cast<double>(s.window_list.size()) - 1;
  if (s.up_count >= kWindowSteps && s.list_index < last) {
    s.list_index += 1;
    s.up_count = 0;
  }
}

void update_swamp(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    check_overflow(s);
    back_off(s);
    return;
  }
  s.bad_steps = 0;
  if (s.refill_on_clean != 0.0) s.hysteresis_left = s.hysteresis;
  s.good_steps += 1;
  const double interval =
      s.window_list.empty()
          ? s.growth_interval
          : s.window_list[static_cast<std::size_t>(s.list_index)];
  if (s.good_steps >= interval) grow_within_bounds(s);
}

// A scale and its inverse are normal numbers above this one.
constexpr double kSmallest = 0x1p-126;

void check(bool good, const std::string& name, const std::string& value,
           const std::string& expected) {
  if (good) return;
  master::refuse("swamp.LossScaler: " + name, value, expected);
}

void check(bool good, const char* name, double value,
           const std::string& expected) {
  check(good, name, python_text(value), expected);
}

bool is_count(double value, double least) {
  return value >= least && value <= 0x1p53 && value == std::trunc(value);
}

// word() returns the index of an option's word. The first word is the default.
double word(const ScalerOptions& options, const char* name,
            const std::vector<std::string>& words) {
  const auto given = options.find(name);
  if (given == options.end()) return 0;
  const auto* text = std::get_if<std::string>(&given->second);
  std::string expected;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (text != nullptr && *text == words[i]) return static_cast<double>(i);
    expected += (i == 0 ? "" : " or ") + words[i];
  }
  check(false, name, python_text(given->second), expected);
  return 0;
}

std::vector<double> windows(const ScalerOptions& options) {
  const auto given = options.find("window_list");
  if (given == options.end() ||
      std::holds_alternative<std::monostate>(given->second)) {
    return {};
  }
  const auto* list = std::get_if<std::vector<std::int64_t>>(&given->second);
  check(list != nullptr, "window_list", python_text(given->second),
        "a list of integers");
  std::vector<double> out;
  for (const std::int64_t window : *list) {
    check(window >= 1 &&
              (out.empty() || static_cast<double>(window) > out.back()),
          "window_list", python_text(given->second),
          "rising integers, the first at least 1");
    out.push_back(static_cast<double>(window));
  }
  return out;
}

void prepare_swamp(const ScalerOptions& options, Scaler& s) {
  if (s.min_scale == 0) s.min_scale = kSmallest;
  if (s.max_scale == 0) s.max_scale = kInfinity;
  check(s.min_scale >= kSmallest && s.min_scale <= 0x1p126, "min_scale",
        s.min_scale, "0 (none) or 2^-126 to 2^126");
  check(s.max_scale >= s.min_scale, "max_scale", s.max_scale,
        "0 (none) or at least min_scale, " + python_text(s.min_scale));
  check(s.initial_scale >= s.min_scale && s.initial_scale <= s.max_scale &&
            s.initial_scale <= 0x1p127,
        "init_scale", s.initial_scale,
        "min_scale to max_scale, " + python_text(s.min_scale) + " to " +
            python_text(s.max_scale) + ", and at most 2^127");
  check(s.growth_factor > 1 && s.growth_factor < kInfinity, "growth_factor",
        s.growth_factor, "a finite number above 1");
  check(s.backoff_factor > 0 && s.backoff_factor < 1, "backoff_factor",
        s.backoff_factor, "a number between 0 and 1");
  check(is_count(s.growth_interval, 1), "growth_interval", s.growth_interval,
        "an integer, at least 1");
  check(is_count(s.hysteresis, 1), "hysteresis", s.hysteresis,
        "an integer, at least 1");
  check(is_count(s.max_overflows, 0), "max_overflows", s.max_overflows,
        "an integer, at least 0");
  s.refill_on_clean = word(options, "hysteresis_refill", {"growth", "clean"});
  s.policy = word(options, "policy", {"clamp", "warn", "error"});
  s.window_list = windows(options);
  s.guard = s.dynamic != 0.0 ? GrowthGuard::finite : GrowthGuard::none;
  s.min_scale = to_float32(s.min_scale);
  s.max_scale = to_float32(s.max_scale);
  s.min_text = python_text(s.min_scale);
  s.hysteresis_left = s.hysteresis;
}

}  // namespace

std::vector<Preset> swamp_presets() {
  const LossScalerOptions d;
  return {
      SWAMP_PRESET(
          "swamp.LossScaler", update_swamp, FloatRule::round_once,
          GrowthGuard::finite, OverflowTest::non_zero,
          {{"init_scale", &Scaler::initial_scale, d.init_scale},
           {"growth_factor", &Scaler::growth_factor, d.growth_factor},
           {"backoff_factor", &Scaler::backoff_factor, d.backoff_factor},
           {"growth_interval", &Scaler::growth_interval,
            static_cast<double>(d.growth_interval)},
           {"min_scale", &Scaler::min_scale, d.min_scale, 0.0},
           {"max_scale", &Scaler::max_scale, d.max_scale, 0.0},
           {"stop_before_inf", &Scaler::dynamic, 1.0, kNan, Kind::boolean},
           {"hysteresis", &Scaler::hysteresis,
            static_cast<double>(d.hysteresis)},
           {"hysteresis_refill", nullptr, 0.0},
           {"window_list", nullptr, 0.0},
           {"max_overflows", &Scaler::max_overflows,
            static_cast<double>(d.max_overflows)},
           {"policy", nullptr, 0.0}},
          {{"growth_tracker", &Scaler::good_steps},
           {"hysteresis_tracker", &Scaler::hysteresis_left},
           {"overflows_in_a_row", &Scaler::bad_steps},
           {"list_index", &Scaler::list_index},
           {"window_up_count", &Scaler::up_count},
           {"window_down_count", &Scaler::down_count}},
          {{"/scale", &Scaler::scale},
           {"/growth_tracker", &Scaler::good_steps, Kind::integer},
           {"/hysteresis_tracker", &Scaler::hysteresis_left, Kind::integer},
           {"/overflows_in_a_row", &Scaler::bad_steps, Kind::integer},
           {"/list_index", &Scaler::list_index, Kind::integer},
           {"/window_up_count", &Scaler::up_count, Kind::integer},
           {"/window_down_count", &Scaler::down_count, Kind::integer}},
          prepare_swamp),
  };
}

}  // namespace swamp::scaler
