// Scalers that count good and bad steps in a graph: TensorFlow 1 and 2 with
// Ascend's adapters, Paddle, jmp.
#include <algorithm>
#include <cmath>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// update_exponential() is tf.contrib.mixed_precision
// ExponentialUpdateLossScaleManager and npu_bridge's copy with another guard.
// Clean steps do not reset the bad steps.
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

// paddle_step() returns whether the scale changes.
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

// update_paddle() is python/paddle/amp/grad_scaler.py, AmpScaler._update():
// bad steps must be consecutive, no bounds.
void update_paddle(Scaler& s, float found_inf) {
  if (s.dynamic == 0.0) return;
  const bool overflow = is_overflow(s, found_inf);
  if (!paddle_step(s, overflow)) return;
  s.scale = times(s, overflow ? s.backoff_factor : s.growth_factor);
}

// update_paddle_op() is paddle/phi/kernels/impl/amp_kernel_impl.h, Update():
// the same, but at least 1 and finite.
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

// tf.contrib FixedLossScaleManager.__init__().
void prepare_fixed(const ScalerOptions&, Scaler& s) {
  require(!(s.initial_scale < 1), s, "ValueError",
          "loss scale must be at least 1.",
          "loss_scale: got " + python_text(s.initial_scale));
  s.skips = s.dynamic;  // Ascend's enable_overflow_check
}

// paddle AmpScaler.__init__().
void prepare_paddle(const ScalerOptions&, Scaler& s) {
  require(s.growth_factor > 1.0, s, "AssertionError",
          "The incr_ratio must be > 1.0.",
          "incr_ratio: got " + python_text(s.growth_factor));
  require(s.backoff_factor < 1.0, s, "AssertionError",
          "The decr_ratio must be < 1.0.",
          "decr_ratio: got " + python_text(s.backoff_factor));
}

// tree_flatten() omits min_loss_scale: after jit or pmap it is 1.
void prepare_pytree(const ScalerOptions&, Scaler& s) { s.min_scale = 1.0; }

std::vector<Option> manager_options() {
  return {{"init_loss_scale", &Scaler::initial_scale, 4294967296.0},
          {"incr_every_n_steps", &Scaler::growth_interval, 1000.0},
          {"decr_every_n_nan_or_inf", &Scaler::decrease_interval, 2.0},
          {"incr_ratio", &Scaler::growth_factor, 2.0},
          {"decr_ratio", &Scaler::backoff_factor, 0.8}};
}

std::vector<Option> keras2_options() {
  return {{"initial_loss_scale", &Scaler::initial_scale, 32768.0},
          {"growth_steps", &Scaler::growth_interval, 2000.0},
          {"multiplier", &Scaler::growth_factor, 2.0}};
}

std::vector<Option> paddle_options(std::vector<Option> more = {}) {
  std::vector<Option> all = {
      {"init_loss_scaling", &Scaler::initial_scale, 65536.0},
      {"incr_ratio", &Scaler::growth_factor, 2.0},
      {"decr_ratio", &Scaler::backoff_factor, 0.5},
      {"incr_every_n_steps", &Scaler::growth_interval, 2000.0},
      {"decr_every_n_nan_or_inf", &Scaler::decrease_interval, 1.0}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Option> jmp_options() {
  return {{"loss_scale", &Scaler::initial_scale, 32768.0},
          {"counter", &Scaler::good_steps, 0.0},
          {"period", &Scaler::growth_interval, 2000.0},
          {"factor", &Scaler::growth_factor, 2.0},
          {"min_loss_scale", &Scaler::min_scale, 1.0}};
}

std::vector<Tracker> good_bad() {
  return {{"good_steps", &Scaler::good_steps},
          {"bad_steps", &Scaler::bad_steps}};
}
std::vector<Tracker> counter() { return {{"counter", &Scaler::good_steps}}; }

// The names of the variables in a TensorFlow checkpoint.
std::vector<Key> manager_keys() {
  return {{"/loss_scale", &Scaler::scale},
          {"/good_steps", &Scaler::good_steps, Kind::integer},
          {"/bad_steps", &Scaler::bad_steps, Kind::integer}};
}
std::vector<Key> keras2_keys() {
  return {{"/current_loss_scale", &Scaler::scale},
          {"/good_steps", &Scaler::good_steps, Kind::integer}};
}
std::vector<Key> paddle_keys() {
  return {
      {"/scale", &Scaler::scale},
      {"/incr_ratio", &Scaler::growth_factor},
      {"/decr_ratio", &Scaler::backoff_factor},
      {"/incr_every_n_steps", &Scaler::growth_interval, Kind::integer},
      {"/decr_every_n_nan_or_inf", &Scaler::decrease_interval, Kind::integer},
      {"/incr_count", &Scaler::good_steps, Kind::integer},
      {"/decr_count", &Scaler::bad_steps, Kind::integer},
      {"/use_dynamic_loss_scaling", &Scaler::dynamic, Kind::boolean}};
}
std::vector<Key> paddle_op_keys() {
  return {{"/loss_scaling", &Scaler::scale},
          {"/good_steps", &Scaler::good_steps, Kind::integer},
          {"/bad_steps", &Scaler::bad_steps, Kind::integer}};
}
std::vector<Key> jmp_keys() {
  return {{"/loss_scale", &Scaler::scale},
          {"/counter", &Scaler::good_steps, Kind::integer},
          {"/period", &Scaler::growth_interval, Kind::integer},
          {"/factor", &Scaler::growth_factor}};
}

}  // namespace

// update_jmp() is jmp/_src/loss_scale.py, DynamicLossScale.adjust();
// MindSpore's amp.DynamicLossScaler has the same rule.
void update_jmp(Scaler& s, float found_inf) {
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(to_float32(s.min_scale), divided_by(s, s.growth_factor));
    s.good_steps = 0;
    return;
  }
  if (s.good_steps == s.growth_interval - 1) grow(s, s.growth_factor);
  s.good_steps = modulo(s, s.good_steps + 1, s.growth_interval);
}

std::vector<Preset> tensorflow_presets() {
  constexpr FloatRule b = FloatRule::round_factor;
  constexpr GrowthGuard none = GrowthGuard::none;
  constexpr GrowthGuard finite = GrowthGuard::finite;
  constexpr GrowthGuard below_3e38 = GrowthGuard::below_3e38;
  constexpr OverflowTest test = OverflowTest::non_zero;
  std::vector<Key> all_jmp_keys = jmp_keys();
  all_jmp_keys.push_back({"/min_loss_scale", &Scaler::min_scale});
  return {
      {"tf.contrib.FixedLossScaleManager",
       update_constant,
       b,
       none,
       test,
       {{"loss_scale", &Scaler::initial_scale, 128.0}},
       {},
       {},
       prepare_fixed},
      {"npu_bridge.FixedLossScaleManager",
       update_constant,
       b,
       none,
       test,
       {{"loss_scale", &Scaler::initial_scale, 128.0},
        {"enable_overflow_check", &Scaler::dynamic, 1.0, kNan, Kind::boolean}},
       {},
       {},
       prepare_fixed},
      {"tf.contrib.ExponentialUpdateLossScaleManager", update_exponential, b,
       finite, test, manager_options(), good_bad(), manager_keys(),
       prepare_nothing},
      {"npu_bridge.ExponentialUpdateLossScaleManager", update_exponential, b,
       below_3e38, test, manager_options(), good_bad(), manager_keys(),
       prepare_nothing},
      {"tf2.keras.DynamicLossScale", update_keras2, b, finite, test,
       keras2_options(), counter(), keras2_keys(), prepare_nothing},
      {"npu_device.NpuLossScaleOptimizer", update_keras2, b, below_3e38, test,
       keras2_options(), counter(), keras2_keys(), prepare_nothing},
      {"paddle.amp.GradScaler",
       update_paddle,
       b,
       none,
       test,
       paddle_options({{"use_dynamic_loss_scaling", &Scaler::dynamic, 1.0, kNan,
                        Kind::boolean}}),
       {{"incr_count", &Scaler::good_steps},
        {"decr_count", &Scaler::bad_steps}},
       paddle_keys(),
       prepare_paddle},
      {"paddle.update_loss_scaling", update_paddle_op, b, finite, test,
       paddle_options(), good_bad(), paddle_op_keys(), prepare_nothing},
      {"jmp.DynamicLossScale", update_jmp, b, finite, test, jmp_options(),
       counter(), all_jmp_keys, prepare_nothing},
      {"jmp.DynamicLossScale[pytree]", update_jmp, b, finite, test,
       jmp_options(), counter(), jmp_keys(), prepare_pytree},
  };
}

}  // namespace swamp::scaler
