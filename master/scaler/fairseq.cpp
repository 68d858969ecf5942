// fairseq/optim/dynamic_loss_scaler.py, check_overflow() and update(), and
// metaseq, which was derived from it. The scale is a Python float.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// count_overflow() returns whether the overflows since the last change of the
// scale are too many for the tolerance.
bool count_overflow(Scaler& s) {
  const double since = s.iteration - s.last_rescale;
  s.last_overflow = s.iteration;
  s.bad_steps += 1;
  if (since == 0.0) {
    raise(s, "ZeroDivisionError", "float division by zero");
  }
  return s.bad_steps / since >= s.tolerance;
}

// divided() is int(window / scale_factor) without the int().
double divided(const Scaler& s, double window) {
  const double quotient = window / s.growth_factor;
  if (std::isfinite(quotient)) return quotient;
  raise(s, "OverflowError", "cannot convert float infinity to integer");
}

void decrease(Scaler& s) {
  s.scale = std::max(divided_by(s, s.growth_factor), s.threshold);
  s.last_rescale = s.iteration;
  s.bad_steps = 0;
}

bool window_is_full(const Scaler& s) {
  return modulo(s, s.iteration - s.last_overflow, s.window) == 0;
}

// update_fairseq() raises an exception at the minimum; the iteration is then
// not counted.
void update_fairseq(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    const double previous = s.scale;
    if (count_overflow(s)) decrease(s);
    if (s.scale <= s.min_scale) {
      s.scale = previous;
      raise(s, "FloatingPointError",
            "Minimum loss scale reached (" + s.min_text +
                "). Your loss is probably exploding. Try lowering the learning "
                "rate, using gradient clipping or increasing the batch size.");
    }
  } else if (window_is_full(s)) {
    s.scale *= s.growth_factor;
    s.last_rescale = s.iteration;
  }
  s.iteration += 1;
}

// update_metaseq() stays above the minimum instead, and its window grows and
// shrinks with the scale.
void update_metaseq(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    const double previous = s.scale;
    if (count_overflow(s)) {
      decrease(s);
      s.window = std::max(std::trunc(divided(s, s.window)), 1.0);
    }
    if (s.scale < s.min_scale) s.scale = previous;
  } else if (window_is_full(s)) {
    s.scale *= s.growth_factor;
    s.window *= s.growth_factor;
    s.last_rescale = s.iteration;
  }
  s.iteration += 1;
}

void prepare_fairseq(const ScalerOptions& options, Scaler& s) {
  s.min_text = option_text(options, "min_loss_scale", s.min_scale);
  s.window = s.growth_interval;
  s.last_overflow = -1;
  s.last_rescale = -1;
}

std::vector<Option> fairseq_options() {
  return {{"init_scale", &Scaler::initial_scale, 32768.0},
          {"scale_factor", &Scaler::growth_factor, 2.0},
          {"scale_window", &Scaler::growth_interval, 2000.0},
          {"tolerance", &Scaler::tolerance, 0.0},
          {"threshold", &Scaler::threshold, -kInfinity, -kInfinity},
          {"min_loss_scale", &Scaler::min_scale, 1e-4}};
}

std::vector<Tracker> fairseq_trackers(std::vector<Tracker> more = {}) {
  std::vector<Tracker> all = {{"iter", &Scaler::iteration},
                              {"last_overflow_iter", &Scaler::last_overflow},
                              {"last_rescale_iter", &Scaler::last_rescale},
                              {"overflows_since_rescale", &Scaler::bad_steps}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::vector<Preset> fairseq_presets() {
  constexpr FloatRule d = FloatRule::exact;
  constexpr GrowthGuard none = GrowthGuard::none;
  constexpr OverflowTest test = OverflowTest::non_zero;
  return {
      // These two save only the scale.
      SWAMP_PRESET("fairseq.DynamicLossScaler", update_fairseq, d, none, test,
                   fairseq_options(), fairseq_trackers(),
                   {{"/loss_scale", &Scaler::scale}}, prepare_fairseq),
      SWAMP_PRESET("metaseq.DynamicLossScaler", update_metaseq, d, none, test,
                   fairseq_options(),
                   fairseq_trackers({{"scale_window", &Scaler::window, false}}),
                   {{"/loss_scale", &Scaler::scale}}, prepare_fairseq),
  };
}

}  // namespace swamp::scaler
