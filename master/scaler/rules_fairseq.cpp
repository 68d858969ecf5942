// The rules of fairseq and of metaseq, which was derived from it:
// fairseq/optim/dynamic_loss_scaler.py, check_overflow() and update().
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

// divided() is int(window / scale_factor) but for the int().
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

}  // namespace

// update_fairseq() gives up at the minimum; the iteration is not counted then.
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

}  // namespace swamp::scaler
