// The rules of Megatron-LM and of ColossalAI, which was derived from it.
#include <algorithm>

#include "master/scaler/scaler.h"

namespace swamp::scaler {

// update_megatron() is Megatron-LM megatron/core/optimizer/grad_scaler.py,
// DynamicGradScaler.update(): the hysteresis is refilled by growth only and
// runs negative; nothing keeps the scale from growing to inf.
void update_megatron(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.good_steps = 0;
    s.hysteresis_left -= 1;
    if (s.hysteresis_left <= 0) {
      s.scale = std::max(times(s, s.backoff_factor), to_float32(s.min_scale));
    }
    return;
  }
  s.good_steps += 1;
  if (s.good_steps == s.growth_interval) {
    s.good_steps = 0;
    s.hysteresis_left = s.hysteresis;
    s.scale = times(s, s.growth_factor);
  }
}

// update_colossalai() is ColossalAI
// colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py: the same, with
// the hysteresis counted up and both bounds optional.
void update_colossalai(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.bad_steps += 1;
    s.good_steps = 0;
    if (s.bad_steps >= s.hysteresis) {
      s.scale = std::max(times(s, s.backoff_factor), to_float32(s.min_scale));
    }
    return;
  }
  s.good_steps += 1;
  if (s.good_steps == s.growth_interval) {
    s.good_steps = 0;
    s.bad_steps = 0;
    s.scale = std::min(times(s, s.growth_factor), to_float32(s.max_scale));
  }
}

}  // namespace swamp::scaler
