// The rules of the scalers that are plain Python floats: DeepSpeed, apex and
// BMTrain. They double, halve or divide, in double.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// print_as_integer() is int(scale) in DeepSpeed's log line, which fails at inf.
void print_as_integer(const Scaler& s) {
  if (std::isfinite(s.scale)) return;
  raise(s, "OverflowError", "cannot convert float infinity to integer");
}

// deepspeed_grows(): the first growth takes one step more than the others.
bool deepspeed_grows(const Scaler& s) {
  const double stable = s.iteration - s.last_overflow - 1;
  return stable > 0 && modulo(s, stable, s.growth_interval) == 0;
}

}  // namespace

// update_deepspeed() is deepspeed/runtime/fp16/loss_scaler.py,
// DynamicLossScaler.update_scale().
void update_deepspeed(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    if (s.hysteresis == 1 || s.hysteresis_left == 1) {
      if (s.scale == s.min_scale && s.raise_at_min != 0.0) {
        raise(s, "Exception",
              "Current loss scale already at minimum - cannot decrease scale "
              "anymore. Exiting run.");
      }
      print_as_integer(s);
      s.scale = std::max(s.scale / 2, s.min_scale);
    } else {
      print_as_integer(s);
      s.hysteresis_left -= 1;
    }
    s.last_overflow = s.iteration;
  } else {
    if (s.consecutive != 0.0) s.hysteresis_left = s.hysteresis;
    if (deepspeed_grows(s)) {
      s.hysteresis_left = s.hysteresis;
      s.scale *= 2;
    }
  }
  s.iteration += 1;
}

// update_fp16_optimizer() is deepspeed/runtime/fp16/fused_optimizer.py,
// FP16_Optimizer._update_scale(); unfused with another minimum.
void update_fp16_optimizer(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(s.scale / 2, s.min_scale);
    s.last_overflow = s.iteration;
  } else if (deepspeed_grows(s)) {
    s.scale *= 2;
  }
  s.iteration += 1;
}

// update_apex_utils() is apex/fp16_utils/loss_scaler.py,
// DynamicLossScaler.update_scale().
void update_apex_utils(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(divided_by(s, s.growth_factor), 1.0);
    s.last_overflow = s.iteration;
  } else if (modulo(s, s.iteration - s.last_overflow, s.growth_interval) == 0) {
    s.scale *= s.growth_factor;
  }
  s.iteration += 1;
}

// update_apex_amp() is apex/amp/scaler.py, LossScaler.update_scale(). Its
// unscale has divided by the scale before: a scale of 0 raises there.
void update_apex_amp(Scaler& s, float found_inf) {
  if (s.scale == 0.0) {
    raise(s, "ZeroDivisionError", "float division by zero");
  }
  const bool dynamic = s.constant_scale == 0.0;
  if (is_overflow(s, found_inf) && dynamic) {
    s.scale = std::max(s.min_scale, s.scale / 2);
    s.good_steps = 0;
  } else {
    s.good_steps += 1;
  }
  if (s.good_steps == s.growth_interval && dynamic) {
    s.scale = std::min(s.max_scale, s.scale * 2);
    s.good_steps = 0;
  }
}

// update_bmtrain() is bmtrain/optim/optim_manager.py: the bounds stop a move
// from beyond them only, so that the scale may end outside.
void update_bmtrain(Scaler& s, float found_inf) {
  if (s.dynamic == 0.0) return;
  if (is_overflow(s, found_inf)) {
    if (s.scale > s.min_scale) {
      s.scale /= s.growth_factor;
      s.good_steps = 0;
    }
    return;
  }
  s.good_steps += 1;
  if (s.good_steps >= s.growth_interval && s.scale < s.max_scale) {
    s.scale *= s.growth_factor;
    s.good_steps = 0;
  }
}

}  // namespace swamp::scaler
