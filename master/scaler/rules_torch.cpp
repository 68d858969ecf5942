// The rules of torch and of what was derived from it: torch.amp.GradScaler, its
// sharded forms, torch_npu, Keras 3, NeMo and apex's hysteresis kernel. They
// differ in float rule, guard and overflow test, which their rows name.
#include "master/scaler/scaler.h"

namespace swamp::scaler {

// update_constant() is every scaler that never moves.
void update_constant(Scaler&, float) {}

namespace {

// torch_step() is pytorch aten/src/ATen/native/cpu/AmpGradScalerKernels.cpp,
// _amp_update_scale_cpu_kernel: equality, so that an interval of 0 never grows.
void torch_step(Scaler& s, bool overflow) {
  if (overflow) {
    s.scale = times(s, s.backoff_factor);
    s.good_steps = 0;
    return;
  }
  s.good_steps += 1;
  if (s.good_steps == s.growth_interval) {
    grow(s, s.growth_factor);
    s.good_steps = 0;  // also where the guard kept the scale
  }
}

}  // namespace

void update_torch(Scaler& s, float found_inf) {
  if (s.dynamic == 0.0) return;  // torch_npu
  torch_step(s, is_overflow(s, found_inf));
}

// update_nemo() is apex csrc/update_scale_hysteresis.cu, and NeMo's
// GradScaler.update() around torch's kernel: tolerated overflows keep the
// scale; any clean step forgives them. A nan is an overflow that hysteresis
// neither counts nor forgives.
void update_nemo(Scaler& s, float found_inf) {
  if (found_inf > 0.0f) {
    s.hysteresis_left -= 1;
    if (s.hysteresis_left > 0) {
      s.good_steps = 0;
      return;
    }
  }
  torch_step(s, is_overflow(s, found_inf));
  if (found_inf <= 0.0f) s.hysteresis_left = s.hysteresis;
}

}  // namespace swamp::scaler
