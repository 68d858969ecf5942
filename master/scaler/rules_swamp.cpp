// The rule of swamp's own scaler: what users of all the others ask for, in one
// (loss_scalers.md, last section). Options: LossScalerOptions.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"
#include "swamp/loss_scaler.h"

namespace swamp::scaler {
namespace {

constexpr double kWindowSteps = 3;  // growths or overflows that move the window

// apply_policy() is for an overflow that found the scale at its floor, or that
// was the last one of too many. Nothing has been changed yet.
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
  // max() for a scale that was loaded from beyond the bound.
  s.scale = std::min(s.scale, std::max(s.max_scale, before));
  s.down_count = 0;
  s.up_count += 1;
  const auto last = static_cast<double>(s.window_list.size()) - 1;
  if (s.up_count >= kWindowSteps && s.list_index < last) {
    s.list_index += 1;
    s.up_count = 0;
  }
}

}  // namespace

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

}  // namespace swamp::scaler
