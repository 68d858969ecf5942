// Rows of the scalers that are Python floats: DeepSpeed, apex, fairseq, metaseq
// and BMTrain.
#include <algorithm>

#include "master/scaler/preset.h"

namespace swamp::scaler {
namespace {

void no_overflow_yet(const ScalerOptions&, Scaler& s) { s.last_overflow = -1; }

// deepspeed LossScaler: its has_overflow() is always False.
void prepare_deepspeed_static(const ScalerOptions&, Scaler& s) { s.skips = 0; }

void prepare_deepspeed(const ScalerOptions&, Scaler& s) {
  s.hysteresis_left = s.hysteresis;
  s.last_overflow = -1;
}

// apex/amp/scaler.py, LossScaler.__init__(); `if self._min_loss_scale:`. A
// static one never skips.
void prepare_apex_amp(const ScalerOptions&, Scaler& s) {
  if (s.min_scale == 0) s.min_scale = -kInfinity;
  if (s.constant_scale == 0) {
    s.scale = std::min(s.max_scale, s.initial_scale);
  } else {
    s.scale = s.constant_scale;
    s.skips = 0;
  }
}

void prepare_fairseq(const ScalerOptions& options, Scaler& s) {
  s.min_text = option_text(options, "min_loss_scale", s.min_scale);
  s.window = s.growth_interval;
  s.last_overflow = -1;
  s.last_rescale = -1;
}

// bmtrain OptimManager.__init__(): None switches scaling off, and a factor
// below 1 is taken for its inverse.
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

std::vector<Preset> host_presets() {
  constexpr FloatRule d = FloatRule::d;
  constexpr GrowthGuard none = GrowthGuard::none;
  constexpr OverflowTest test = OverflowTest::non_zero;
  return {
      {"deepspeed.LossScaler",
       update_constant,
       d,
       none,
       test,
       {{"scale", &Scaler::initial_scale, 1.0}},
       {},
       {},
       prepare_deepspeed_static},
      {"deepspeed.DynamicLossScaler",
       update_deepspeed,
       d,
       none,
       test,
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
       prepare_deepspeed},
      {"deepspeed.FP16_Optimizer._update_scale",
       update_fp16_optimizer,
       d,
       none,
       test,
       {{"init_scale", &Scaler::initial_scale, 4294967296.0},
        {"scale_window", &Scaler::growth_interval, 1000.0},
        {"min_scale", &Scaler::min_scale, 1.0}},
       iterations(),
       attributes(),
       no_overflow_yet},
      {"apex.fp16_utils.DynamicLossScaler",
       update_apex_utils,
       d,
       none,
       test,
       {{"init_scale", &Scaler::initial_scale, 4294967296.0},
        {"scale_factor", &Scaler::growth_factor, 2.0},
        {"scale_window", &Scaler::growth_interval, 1000.0}},
       iterations(),
       attributes({{"/scale_factor", &Scaler::growth_factor}}),
       no_overflow_yet},
      // scale_factor is an argument of the original, which ignores it.
      {"apex.amp.LossScaler",
       update_apex_amp,
       d,
       none,
       test,
       {{"loss_scale", &Scaler::constant_scale, 0.0},
        {"init_scale", &Scaler::initial_scale, 65536.0},
        {"scale_factor", &Scaler::growth_factor, 2.0},
        {"scale_window", &Scaler::growth_interval, 2000.0},
        {"min_loss_scale", &Scaler::min_scale, -kInfinity, -kInfinity},
        {"max_loss_scale", &Scaler::max_scale, 16777216.0}},
       {{"unskipped", &Scaler::good_steps}},
       {{"/loss_scaler0/loss_scale", &Scaler::scale},
        {"/loss_scaler0/unskipped", &Scaler::good_steps, Kind::integer}},
       prepare_apex_amp},
      // These two keep nothing but the scale.
      {"fairseq.DynamicLossScaler",
       update_fairseq,
       d,
       none,
       test,
       fairseq_options(),
       fairseq_trackers(),
       {{"/loss_scale", &Scaler::scale}},
       prepare_fairseq},
      {"metaseq.DynamicLossScaler",
       update_metaseq,
       d,
       none,
       test,
       fairseq_options(),
       fairseq_trackers({{"scale_window", &Scaler::window, false}}),
       {{"/loss_scale", &Scaler::scale}},
       prepare_fairseq},
      {"bmtrain.OptimManager",
       update_bmtrain,
       d,
       none,
       test,
       {{"loss_scale", &Scaler::initial_scale, 0.0, 0.0},
        {"loss_scale_factor", &Scaler::growth_factor, 2.0},
        {"loss_scale_steps", &Scaler::growth_interval, 1024.0},
        {"min_loss_scale", &Scaler::min_scale, 1.0},
        {"max_loss_scale", &Scaler::max_scale, kInfinity}},
       {{"steps_since_last_scale", &Scaler::good_steps}},
       {{"/loss_scale", &Scaler::scale}},
       prepare_bmtrain},
  };
}

}  // namespace swamp::scaler
