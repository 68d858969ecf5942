// The row of swamp's own scaler. Every option is checked, and the text names
// option and value.
#include "master/scaler/preset.h"

namespace swamp::scaler {
namespace {

// A scale and its inverse are normal numbers above this one.
constexpr double kSmallest = 0x1p-126;

void check(bool good, const std::string& name, const std::string& value,
           const std::string& expected) {
  if (good) return;
  throw Error(SWAMP_INVALID_ARGUMENT, "swamp.LossScaler: " + name + ": got " +
                                          value + ", expected " + expected);
}

void check(bool good, const char* name, double value,
           const std::string& expected) {
  check(good, name, python_text(value), expected);
}

bool is_count(double value, double least) {
  return value >= least && value <= 0x1p53 && value == std::trunc(value);
}

// word() is the index of an option's word; its first is the default.
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
      {"swamp.LossScaler",
       update_swamp,
       FloatRule::a,
       GrowthGuard::finite,
       OverflowTest::non_zero,
       {{"init_scale", &Scaler::initial_scale, d.init_scale},
        {"growth_factor", &Scaler::growth_factor, d.growth_factor},
        {"backoff_factor", &Scaler::backoff_factor, d.backoff_factor},
        {"growth_interval", &Scaler::growth_interval,
         static_cast<double>(d.growth_interval)},
        {"min_scale", &Scaler::min_scale, d.min_scale, 0.0},
        {"max_scale", &Scaler::max_scale, d.max_scale, 0.0},
        {"stop_before_inf", &Scaler::dynamic, 1.0, kNan, Kind::boolean},
        {"hysteresis", &Scaler::hysteresis, static_cast<double>(d.hysteresis)},
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
       prepare_swamp},
  };
}

}  // namespace swamp::scaler
