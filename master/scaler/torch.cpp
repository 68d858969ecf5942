// torch.amp.GradScaler and the scalers derived from it: the sharded scalers,
// torch_npu, Keras 3, NeMo and apex's hysteresis kernel. They have the same
// constructor arguments and differ in rounding, guard and overflow test. An
// interval of 0 and a negative scale are accepted, as in the originals.
#include "master/scaler/scaler.h"

namespace swamp::scaler {
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
    s.good_steps = 0;  // also if the guard kept the scale
  }
}

void update_torch(Scaler& s, float found_inf) {
  if (s.dynamic == 0.0) return;  // torch_npu
  torch_step(s, is_overflow(s, found_inf));
}

// update_nemo() is apex csrc/update_scale_hysteresis.cu, and NeMo's
// GradScaler.update() around torch's kernel: tolerated overflows keep the
// scale, and any clean step resets their count. A nan is an overflow that does
// not change the count.
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

// torch/amp/grad_scaler.py, GradScaler.__init__().
void check_factors(const Scaler& s, const char* type) {
  require(s.growth_factor > 1.0, s, type, "The growth factor must be > 1.0.",
          "growth_factor: got " + python_text(s.growth_factor));
  require(s.backoff_factor < 1.0, s, type, "The backoff factor must be < 1.0.",
          "backoff_factor: got " + python_text(s.backoff_factor));
}

void prepare_torch(const ScalerOptions&, Scaler& s) {
  check_factors(s, "AssertionError");
}

void prepare_torch_npu(const ScalerOptions&, Scaler& s) {
  check_factors(s, "ValueError");
  s.skips = s.dynamic;  // a static scaler checks nothing and always steps
}

void prepare_nemo(const ScalerOptions&, Scaler& s) {
  check_factors(s, "AssertionError");
  s.hysteresis_left = s.hysteresis;
}

// The kernel of apex validates nothing.
void prepare_apex_kernel(const ScalerOptions&, Scaler& s) {
  s.hysteresis_left = s.hysteresis;
}

std::vector<Option> options(std::vector<Option> more = {}) {
  std::vector<Option> all = {
      {"init_scale", &Scaler::initial_scale, 65536.0},
      {"growth_factor", &Scaler::growth_factor, 2.0},
      {"backoff_factor", &Scaler::backoff_factor, 0.5},
      {"growth_interval", &Scaler::growth_interval, 2000.0}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// GradScaler.state_dict(): loading overwrites factors and interval.
std::vector<Key> keys(std::vector<Key> more = {}) {
  std::vector<Key> all = {
      {"/scale", &Scaler::scale},
      {"/growth_factor", &Scaler::growth_factor},
      {"/backoff_factor", &Scaler::backoff_factor},
      {"/growth_interval", &Scaler::growth_interval, Kind::integer},
      {"/_growth_tracker", &Scaler::good_steps, Kind::integer}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

constexpr Option kHysteresis = {"hysteresis", &Scaler::hysteresis, 1.0};
constexpr Tracker kGrowth = {"growth_tracker", &Scaler::good_steps};
constexpr Tracker kHysteresisLeft = {"hysteresis_tracker",
                                     &Scaler::hysteresis_left};

}  // namespace

std::vector<Preset> torch_presets() {
  return {
      {"torch.amp.GradScaler",
       update_torch,
       FloatRule::round_once,
       GrowthGuard::finite,
       OverflowTest::non_zero,
       options(),
       {kGrowth},
       keys(),
       prepare_torch},
      // The sharded scalers update a scale on the CPU in Python, without a
      // guard; found_inf is a sum over ranks, and fairscale treats 2.0 as
      // clean.
      {"torch.fsdp.ShardedGradScaler[cpu]",
       update_torch,
       FloatRule::round_factor,
       GrowthGuard::none,
       OverflowTest::at_least_one,
       options(),
       {kGrowth},
       keys(),
       prepare_torch},
      {"fairscale.ShardedGradScaler[cpu]",
       update_torch,
       FloatRule::round_factor,
       GrowthGuard::none,
       OverflowTest::equal_to_one,
       options(),
       {kGrowth},
       keys(),
       prepare_torch},
      {"torch_npu.GradScaler",
       update_torch,
       FloatRule::round_factor,
       GrowthGuard::finite,
       OverflowTest::non_zero,
       options({{"dynamic", &Scaler::dynamic, 1.0, kNan, Kind::boolean}}),
       {kGrowth},
       keys({{"/dynamic", &Scaler::dynamic, Kind::boolean}}),
       prepare_torch_npu},
      // NeMo's load_state_dict() reads "_hysterisis_tracker" and so always
      // sets 1.
      {"nemo.GradScaler",
       update_nemo,
       FloatRule::round_once,
       GrowthGuard::finite,
       OverflowTest::non_zero,
       options({kHysteresis}),
       {kGrowth, kHysteresisLeft},
       keys({{"/_hysteresis_tracker", &Scaler::hysteresis_left, Kind::integer,
              1.0}}),
       prepare_nemo},
      {"apex.update_scale_hysteresis",
       update_nemo,
       FloatRule::round_once,
       GrowthGuard::finite,
       OverflowTest::non_zero,
       options({kHysteresis}),
       {kGrowth, kHysteresisLeft},
       {{"/current_scale", &Scaler::scale},
        {"/growth_tracker", &Scaler::good_steps, Kind::integer},
        {"/hysteresis_tracker", &Scaler::hysteresis_left, Kind::integer}},
       prepare_apex_kernel},
      {"keras.LossScaleOptimizer",
       update_torch,
       FloatRule::round_factor,
       GrowthGuard::none,
       OverflowTest::non_zero,
       {{"initial_scale", &Scaler::initial_scale, 32768.0},
        {"dynamic_growth_steps", &Scaler::growth_interval, 2000.0}},
       {{"step_counter", &Scaler::good_steps}},
       {{"/dynamic_scale", &Scaler::scale},
        {"/step_counter", &Scaler::good_steps, Kind::integer}},
       prepare_nothing},
  };
}

}  // namespace swamp::scaler
