// Megatron-LM, and ColossalAI, which was derived from it.
#include <algorithm>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// update_megatron() is Megatron-LM megatron/core/optimizer/grad_scaler.py,
// DynamicGradScaler.update(): only growth resets the hysteresis, which may
// become negative; the scale may grow to inf.
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

constexpr char kAssert[] = "AssertionError";

std::string got(const char* name, double value, const char* expected) {
  return std::string(name) + ": got " + python_text(value) + ", expected " +
         expected;
}

void check_initial(const Scaler& s) {
  // In double: 1e-60 passes and becomes 0.
  require(s.initial_scale > 0, s, kAssert, "",
          got("initial_scale", s.initial_scale, "more than 0"));
}

void prepare_constant(const ScalerOptions&, Scaler& s) { check_initial(s); }

// DynamicGradScaler.__init__(): bare asserts, in this order.
void prepare_megatron(const ScalerOptions&, Scaler& s) {
  check_initial(s);
  require(s.min_scale > 0, s, kAssert, "",
          got("min_scale", s.min_scale, "more than 0"));
  require(s.min_scale <= s.initial_scale, s, kAssert, "",
          got("min_scale", s.min_scale, "at most initial_scale"));
  require(s.growth_factor > 1, s, kAssert, "",
          got("growth_factor", s.growth_factor, "more than 1"));
  require(s.backoff_factor < 1 && s.backoff_factor > 0, s, kAssert, "",
          got("backoff_factor", s.backoff_factor, "between 0 and 1"));
  require(s.growth_interval > 0, s, kAssert, "",
          got("growth_interval", s.growth_interval, "more than 0"));
  require(s.hysteresis > 0, s, kAssert, "",
          got("hysteresis", s.hysteresis, "more than 0"));
  s.hysteresis_left = s.hysteresis;
}

// colossalai DynamicGradScaler: `if min_scale:`, so that 0 is none.
void prepare_colossalai(const ScalerOptions&, Scaler& s) {
  check_initial(s);
  if (s.min_scale == 0) s.min_scale = -kInfinity;
  if (s.max_scale == 0) s.max_scale = kInfinity;
  if (s.min_scale != -kInfinity) {
    require(s.min_scale > 0, s, kAssert,
            "The minimum gradient scale cannot be zero or negative",
            got("min_scale", s.min_scale, "more than 0"));
    require(s.min_scale <= s.initial_scale, s, kAssert,
            "The minimum gradient scale cannot be greater than the current "
            "scale",
            got("min_scale", s.min_scale, "at most initial_scale"));
  }
  require(s.max_scale > 0, s, kAssert,
          "The maximum gradient scale cannot be zero or negative",
          got("max_scale", s.max_scale, "more than 0"));
  require(s.max_scale >= s.initial_scale, s, kAssert,
          "The maximum gradient scale cannot be smaller than the current scale",
          got("max_scale", s.max_scale, "at least initial_scale"));
  require(s.growth_factor > 1, s, kAssert,
          "The growth factor cannot be equal or smaller than 1",
          got("growth_factor", s.growth_factor, "more than 1"));
  require(s.backoff_factor > 0 && s.backoff_factor < 1, s, kAssert,
          "The backoff factor must be between 0 and 1",
          got("backoff_factor", s.backoff_factor, "between 0 and 1"));
  require(s.hysteresis >= 0, s, kAssert, "The hysteresis cannot be negative",
          got("hysteresis", s.hysteresis, "at least 0"));
}

}  // namespace

std::vector<Preset> megatron_presets() {
  return {
      SWAMP_PRESET("megatron.ConstantGradScaler", update_constant,
                   FloatRule::round_factor, GrowthGuard::none,
                   OverflowTest::non_zero,
                   {{"initial_scale", &Scaler::initial_scale, 4294967296.0}},
                   {}, {}, prepare_constant),
      // The class has no defaults; these are the command line's.
      SWAMP_PRESET(
          "megatron.DynamicGradScaler", update_megatron,
          FloatRule::round_factor, GrowthGuard::none, OverflowTest::non_zero,
          {{"initial_scale", &Scaler::initial_scale, 4294967296.0},
           {"min_scale", &Scaler::min_scale, 1.0},
           {"growth_factor", &Scaler::growth_factor, 2.0},
           {"backoff_factor", &Scaler::backoff_factor, 0.5},
           {"growth_interval", &Scaler::growth_interval, 1000.0},
           {"hysteresis", &Scaler::hysteresis, 2.0}},
          {{"growth_tracker", &Scaler::good_steps},
           {"hysteresis_tracker", &Scaler::hysteresis_left}},
          {{"/scale", &Scaler::scale},
           {"/growth_tracker", &Scaler::good_steps, Kind::integer},
           {"/hysteresis_tracker", &Scaler::hysteresis_left, Kind::integer}},
          prepare_megatron),
      // Its state_dict() has neither counter.
      SWAMP_PRESET("colossalai.DynamicGradScaler", update_colossalai,
                   FloatRule::round_factor, GrowthGuard::none,
                   OverflowTest::non_zero,
                   {{"initial_scale", &Scaler::initial_scale, 65536.0},
                    {"growth_factor", &Scaler::growth_factor, 2.0},
                    {"backoff_factor", &Scaler::backoff_factor, 0.5},
                    {"growth_interval", &Scaler::growth_interval, 1000.0},
                    {"min_scale", &Scaler::min_scale, -kInfinity, -kInfinity},
                    {"max_scale", &Scaler::max_scale, kInfinity, kInfinity},
                    {"hysteresis", &Scaler::hysteresis, 2.0}},
                   {{"growth_step", &Scaler::good_steps},
                    {"hysteresis_step", &Scaler::bad_steps}},
                   {{"/scale", &Scaler::scale},
                    {"/growth_factor", &Scaler::growth_factor},
                    {"/backoff_factor", &Scaler::backoff_factor},
                    {"/hysteresis", &Scaler::hysteresis, Kind::integer}},
                   prepare_colossalai),
  };
}

}  // namespace swamp::scaler
