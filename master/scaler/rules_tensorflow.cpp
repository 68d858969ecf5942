// The rules that count good and bad steps in a graph: TensorFlow 1 and 2 with
// Ascend's adapters, Paddle, and jmp with MindSpore's amp scaler.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"

namespace swamp::scaler {

// update_exponential() is tf.contrib.mixed_precision
// ExponentialUpdateLossScaleManager and npu_bridge's copy with another guard.
// Bad steps accumulate over clean ones.
void update_exponential(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.good_steps = 0;
    s.bad_steps += 1;
    if (s.bad_steps >= s.decrease_interval) {
      s.scale = std::max(1.0, times(s, s.backoff_factor));
      s.bad_steps = 0;
    }
    return;
  }
  s.good_steps += 1;
  if (s.good_steps >= s.growth_interval) {
    grow(s, s.growth_factor);
    s.good_steps = 0;
    s.bad_steps = 0;
  }
}

// update_keras2() is tf.keras mixed_precision _DynamicLossScaleState, and
// npu_device's NpuLossScaleOptimizer with another guard. It divides.
void update_keras2(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(divided_by(s, s.growth_factor), 1.0);
    s.good_steps = 0;
    return;
  }
  s.good_steps += 1;
  if (s.good_steps >= s.growth_interval) {
    grow(s, s.growth_factor);
    s.good_steps = 0;
  }
}

namespace {

// paddle_step() returns whether the scale is to move.
bool paddle_step(Scaler& s, bool overflow) {
  double& mine = overflow ? s.bad_steps : s.good_steps;
  double& other = overflow ? s.good_steps : s.bad_steps;
  other = 0;
  mine += 1;
  if (mine != (overflow ? s.decrease_interval : s.growth_interval)) {
    return false;
  }
  mine = 0;
  return true;
}

}  // namespace

// update_paddle() is python/paddle/amp/grad_scaler.py, AmpScaler._update():
// bad steps must be consecutive, no bounds.
void update_paddle(Scaler& s, float found_inf) {
  if (s.dynamic == 0.0) return;
  const bool overflow = is_overflow(s, found_inf);
  if (!paddle_step(s, overflow)) return;
  s.scale = times(s, overflow ? s.backoff_factor : s.growth_factor);
}

// update_paddle_op() is paddle/phi/kernels/impl/amp_kernel_impl.h, Update():
// the same, at least 1 and finite.
void update_paddle_op(Scaler& s, float found_inf) {
  const bool overflow = is_overflow(s, found_inf);
  if (!paddle_step(s, overflow)) return;
  if (overflow) {
    const double lowered = times(s, s.backoff_factor);
    s.scale = lowered < 1.0 ? 1.0 : lowered;
  } else {
    grow(s, s.growth_factor);
  }
}

// update_jmp() is jmp/_src/loss_scale.py, DynamicLossScale.adjust();
// MindSpore's amp.DynamicLossScaler says the same in its own words.
void update_jmp(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(to_float32(s.min_scale), divided_by(s, s.growth_factor));
    s.good_steps = 0;
    return;
  }
  if (s.good_steps == s.growth_interval - 1) grow(s, s.growth_factor);
  s.good_steps = modulo(s, s.good_steps + 1, s.growth_interval);
}

}  // namespace swamp::scaler
