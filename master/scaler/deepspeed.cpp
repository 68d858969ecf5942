// DeepSpeed, apex and BMTrain: the scale is a Python float, so all arithmetic
// is double.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// print_as_integer() is the int(scale) of DeepSpeed's log line, which raises an
// exception for inf.
void print_as_integer(const Scaler& s) {
  if (std::isfinite(s.scale)) return;
  raise(s, "OverflowError", "cannot convert float infinity to integer");
}

// deepspeed_grows() returns whether the scale grows; the first growth needs one
// step more than the others.
bool deepspeed_grows(const Scaler& s) {
  const double stable = s.iteration - s.last_overflow - 1;
  return stable > 0 && modulo(s, stable, s.growth_interval) == 0;
}

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
// FP16_Optimizer._update_scale(); the unfused optimizer has another minimum.
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
// unscale divides by the scale before, and raises an exception if it is 0.
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

// update_bmtrain() is bmtrain/optim/optim_manager.py: the bounds are tested
// only before a change, so that the scale may end outside.
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

void no_overflow_yet(const ScalerOptions&, Scaler& s) { s.last_overflow = -1; }

// deepspeed LossScaler: its has_overflow() is always False.
void prepare_deepspeed_static(const ScalerOptions&, Scaler& s) { s.skips = 0; }

void prepare_deepspeed(const ScalerOptions&, Scaler& s) {
  s.hysteresis_left = s.hysteresis;
  s.last_overflow = -1;
}

// apex/amp/scaler.py, LossScaler.__init__(); `if self._min_loss_scale:`. A
// static scaler never skips.
void prepare_apex_amp(const ScalerOptions&, Scaler& s) {
  if (s.min_scale == 0) s.min_scale = -kInfinity;
  if (s.constant_scale == 0) {
    s.scale = std::min(s.max_scale, s.initial_scale);
  } else {
    s.scale = s.constant_scale;
    s.skips = 0;
  }
}

// bmtrain OptimManager.__init__(): None disables scaling, and a factor below 1
// means its inverse.
void prepare_bmtrain(const ScalerOptions&, Scaler& s) {
  if (s.initial_scale == 0) {
    s.dynamic = 0;
    s.skips = 0;
    s.scale = 1;
  }
  if (s.growth_factor <= 1) {
    require(s.growth_factor != 0, s, "ZeroDivisionError", "division by zero",
            "loss_scale_factor: got 0");
    s.growth_factor = 1 / s.growth_factor;
  }
}

std::vector<Tracker> iterations(std::vector<Tracker> more = {}) {
  std::vector<Tracker> all = {{"cur_iter", &Scaler::iteration},
                              {"last_overflow_iter", &Scaler::last_overflow}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Attributes of the pickled object.
std::vector<Key> attributes(std::vector<Key> more = {}) {
  std::vector<Key> all = {
      {"/cur_scale", &Scaler::scale},
      {"/cur_iter", &Scaler::iteration, Kind::integer},
      {"/last_overflow_iter", &Scaler::last_overflow, Kind::integer},
      {"/scale_window", &Scaler::growth_interval, Kind::integer}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::vector<Preset> deepspeed_presets() {
  constexpr FloatRule d = FloatRule::exact;
  constexpr GrowthGuard none = GrowthGuard::none;
  constexpr OverflowTest test = OverflowTest::non_zero;
  return {
      SWAMP_PRESET("deepspeed.LossScaler", update_constant, d, none, test,
                   {{"scale", &Scaler::initial_scale, 1.0}}, {}, {},
                   prepare_deepspeed_static),
      SWAMP_PRESET(
          "deepspeed.DynamicLossScaler", update_deepspeed, d, none, test,
          {{"init_scale", &Scaler::initial_scale, 65536.0},
           {"scale_window", &Scaler::growth_interval, 1000.0},
           {"min_scale", &Scaler::min_scale, 1.0},
           {"delayed_shift", &Scaler::hysteresis, 2.0},
           {"consecutive_hysteresis", &Scaler::consecutive, 0.0, kNan,
            Kind::boolean},
           {"raise_error_at_min_scale", &Scaler::raise_at_min, 1.0, kNan,
            Kind::boolean}},
          iterations({{"cur_hysteresis", &Scaler::hysteresis_left}}),
          attributes(
              {{"/min_scale", &Scaler::min_scale},
               {"/delayed_shift", &Scaler::hysteresis, Kind::integer},
               {"/cur_hysteresis", &Scaler::hysteresis_left, Kind::integer},
               {"/consecutive_hysteresis", &Scaler::consecutive, Kind::boolean},
               {"/raise_error_at_min_scale", &Scaler::raise_at_min,
                Kind::boolean}}),
          prepare_deepspeed),
      SWAMP_PRESET("deepspeed.FP16_Optimizer._update_scale",
                   update_fp16_optimizer, d, none, test,
                   {{"init_scale", &Scaler::initial_scale, 4294967296.0},
                    {"scale_window", &Scaler::growth_interval, 1000.0},
                    {"min_scale", &Scaler::min_scale, 1.0}},
                   iterations(), attributes(), no_overflow_yet),
      SWAMP_PRESET(
          "apex.fp16_utils.DynamicLossScaler", update_apex_utils, d, none, test,
          {{"init_scale", &Scaler::initial_scale, 4294967296.0},
           {"scale_factor", &Scaler::growth_factor, 2.0},
           {"scale_window", &Scaler::growth_interval, 1000.0}},
          iterations(), attributes({{"/scale_factor", &Scaler::growth_factor}}),
          no_overflow_yet),
      // scale_factor is an argument of the original, which ignores it.
      SWAMP_PRESET(
          "apex.amp.LossScaler", update_apex_amp, d, none, test,
          {{"loss_scale", &Scaler::constant_scale, 0.0},
           {"init_scale", &Scaler::initial_scale, 65536.0},
           {"scale_factor", &Scaler::growth_factor, 2.0},
           {"scale_window", &Scaler::growth_interval, 2000.0},
           {"min_loss_scale", &Scaler::min_scale, -kInfinity, -kInfinity},
           {"max_loss_scale", &Scaler::max_scale, 16777216.0}},
          {{"unskipped", &Scaler::good_steps}},
          {{"/loss_scaler0/loss_scale", &Scaler::scale},
           {"/loss_scaler0/unskipped", &Scaler::good_steps, Kind::integer}},
          prepare_apex_amp),
      SWAMP_PRESET("bmtrain.OptimManager", update_bmtrain, d, none, test,
                   {{"loss_scale", &Scaler::initial_scale, 0.0, 0.0},
                    {"loss_scale_factor", &Scaler::growth_factor, 2.0},
                    {"loss_scale_steps", &Scaler::growth_interval, 1024.0},
                    {"min_loss_scale", &Scaler::min_scale, 1.0},
                    {"max_loss_scale", &Scaler::max_scale, kInfinity}},
                   {{"steps_since_last_scale", &Scaler::good_steps}},
                   {{"/loss_scale", &Scaler::scale}}, prepare_bmtrain),
  };
}

}  // namespace swamp::scaler
