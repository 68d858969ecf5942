// GradScaler's numbers and checkpoints (PyTorch's test_pickle_gradscaler,
// test_grad_scaling_state_dict), and what it does when not enabled.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "support/errors.h"
#include "swamp/grad_scaler.h"

namespace swamp::test {
namespace {

GradScaler make(double scale, double growth, double backoff,
                std::int64_t interval) {
  GradScalerOptions options;
  options.init_scale = scale;
  options.growth_factor = growth;
  options.backoff_factor = backoff;
  options.growth_interval = interval;
  return GradScaler(options);
}

TEST(GradScalerState, StateDictOverwritesAll) {
  for (const bool lazy_init_before : {true, false}) {
    GradScaler from = make(3.0, 4.0, 0.5, 2);
    float gradient = 1.0f;
    FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [] {});
    from.scale(1.0f);
    from.step(optimizer);
    from.update();
    EXPECT_EQ(from.get_growth_tracker(), 1);

    GradScaler to = make(6.0, 7.0, 0.8, 1);
    if (lazy_init_before) to.scale(1.0f);
    to.load_state_dict(from.state_dict());
    EXPECT_EQ(to.get_scale(), 3.0);
    EXPECT_EQ(to.get_growth_factor(), 4.0);
    EXPECT_EQ(to.get_backoff_factor(), 0.5);
    EXPECT_EQ(to.get_growth_interval(), 2);
    EXPECT_EQ(to.get_growth_tracker(), 1);
    EXPECT_EQ(to.scale(4.0f), 12.0f);
    to.step(optimizer);
    EXPECT_EQ(to.update().new_scale, 12.0);  // the tracker continued
  }
}

// A state as PyTorch saves it, without swamp's own object.
TEST(GradScalerState, TakesPyTorchsOwn) {
  GradScaler scaler;
  scaler.load_state_dict(
      R"({"scale":32768.0,"growth_factor":2.0,"backoff_factor":0.5,)"
      R"("growth_interval":2000,"_growth_tracker":17})");
  EXPECT_EQ(scaler.get_scale(), 32768.0);
  EXPECT_EQ(scaler.get_growth_tracker(), 17);
  EXPECT_EQ(scaler.state_dict().rfind(
                R"({"scale":32768.0,"growth_factor":2.0,"backoff_factor":0.5,)"
                R"("growth_interval":2000,"_growth_tracker":17,)",
                0),
            0u);
  const std::string before = scaler.state_dict();
  EXPECT_THROW(scaler.load_state_dict(R"({"scale":1.0})"), Error);
  EXPECT_THROW(scaler.load_state_dict("{}"), ScalerError);
  EXPECT_EQ(scaler.state_dict(), before);
}

TEST(GradScalerState, TheScaleIsAsGivenUntilTheFirstScale) {
  GradScaler scaler = make(0.1, 2.0, 0.5, 1);
  EXPECT_EQ(scaler.get_scale(), 0.1);
  scaler.scale(1.0f);
  EXPECT_EQ(scaler.get_scale(), static_cast<double>(0.1f));
}

TEST(GradScalerState, LossesKeepTheirType) {
  GradScaler scaler = make(0.1, 2.0, 0.5, 1);
  EXPECT_EQ(scaler.scale(0.3f), 0.3f * 0.1f);
  EXPECT_EQ(scaler.scale(0.3), 0.3 * static_cast<double>(0.1f));
}

TEST(GradScalerState, SettersAreNotChecked) {
  GradScaler scaler;
  scaler.set_growth_factor(0.25);
  scaler.set_backoff_factor(3.0);
  scaler.set_growth_interval(1);
  float gradient = 1.0f;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [] {});
  scaler.scale(1.0f);
  scaler.step(optimizer);
  EXPECT_EQ(scaler.update().new_scale, 16384.0);
  gradient = std::nanf("");
  scaler.step(optimizer);
  EXPECT_EQ(scaler.update().new_scale, 49152.0);
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  scaler.set_growth_interval(kNever);
  EXPECT_EQ(scaler.get_growth_interval(), kNever);
}

// If the interval is set below the counter, the counter never equals it.
TEST(GradScalerState, AnIntervalBelowTheTrackerIsNotMet) {
  GradScaler scaler = make(4.0, 2.0, 0.5, 10);
  float gradient = 1.0f;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [] {});
  scaler.scale(1.0f);
  for (int step = 0; step < 20; ++step) {
    if (step == 5) scaler.set_growth_interval(3);
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.get_growth_tracker(), 20);
}

TEST(GradScalerState, NotEnabledDoesNothing) {
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler(options);
  float gradient = std::numeric_limits<float>::infinity();
  int steps = 0;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [&] { ++steps; });
  EXPECT_FALSE(scaler.is_enabled());
  scaler.step(optimizer);  // in any order, without any scale()
  scaler.unscale_(optimizer);
  EXPECT_FALSE(scaler.step(optimizer).found_inf);
  EXPECT_EQ(scaler.update().new_scale, 1.0);
  EXPECT_EQ(scaler.update(3.0).new_scale, 1.0);
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(scaler.scale(3.5f), 3.5f);
  float output = 2.0f;
  scaler.scale_(Tensor{&output, 1, kFloat32});
  EXPECT_EQ(output, 2.0f);
  EXPECT_EQ(scaler.get_scale(), 1.0);
  EXPECT_EQ(scaler.get_growth_tracker(), 0);
  EXPECT_EQ(scaler.state_dict(), "{}");
  EXPECT_NO_THROW(scaler.load_state_dict("{}"));
  EXPECT_NO_THROW(scaler.set_growth_factor(3.0));
  try {
    scaler.get_growth_factor();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ScalerError& error) {
    EXPECT_EQ(error.type(), "AttributeError");
    EXPECT_EQ(error.message(),
              "'GradScaler' object has no attribute '_growth_factor'");
  }
}

// ---- GradScaler's errors that PyTorch's records (grad_scaler_golden_test.cpp)
// do not contain: the constructor's, swamp's own, and the state after them.

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(GradScalerErrors, FactorsAreCheckedWhenEnabled) {
  GradScalerOptions growth;
  growth.growth_factor = 1.0;
  GradScalerOptions backoff;
  backoff.backoff_factor = 1.0;
  EXPECT_TRUE(has_words(error_of([&] { GradScaler scaler(growth); }),
                        {"AssertionError: The growth factor must be > 1.0."}));
  EXPECT_TRUE(has_words(error_of([&] { GradScaler scaler(backoff); }),
                        {"AssertionError: The backoff factor must be < 1.0."}));
  growth.enabled = backoff.enabled = false;
  EXPECT_NO_THROW(GradScaler scaler(growth));
  EXPECT_NO_THROW(GradScaler scaler(backoff));
  // PyTorch accepts these.
  GradScalerOptions odd;
  odd.init_scale = -1.0;
  odd.backoff_factor = -2.0;
  odd.growth_interval = 0;
  EXPECT_NO_THROW(GradScaler scaler(odd));
}

// PyTorch accepts these, and then every gradient is nan.
TEST(GradScalerErrors, NanIsRefused) {
  const double nan = std::nan("");
  for (const double bad : {nan, HUGE_VAL, -HUGE_VAL}) {
    GradScalerOptions options;
    options.init_scale = bad;
    EXPECT_TRUE(has_words(error_of([&] { GradScaler scaler(options); }),
                          {"init_scale: got", "expected a finite number"}));
    options.enabled = false;
    EXPECT_NO_THROW(GradScaler scaler(options));
  }
  GradScaler scaler;
  scaler.scale(1.0f);
  for (const auto& [name, call] :
       {std::pair<const char*, std::function<void()>>{
            "new_scale", [&] { scaler.update(nan); }},
        {"growth_factor", [&] { scaler.set_growth_factor(nan); }},
        {"backoff_factor", [&] { scaler.set_backoff_factor(nan); }}}) {
    EXPECT_EQ(error_of(call), std::string("GradScaler: ") + name +
                                  ": got nan, expected a number");
  }
  EXPECT_EQ(scaler.get_scale(), 65536.0);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
}

TEST(GradScalerErrors, Float16IsRefusedBeforeAnyWrite) {
  float wide = 3.0f;
  std::uint16_t half = 0x4200;  // 3
  int steps = 0;
  const Tensor list[] = {{&wide, 1, kFloat32}, {&half, 1, kFloat16}};
  FunctionOptimizer optimizer(list, [&] { ++steps; });
  GradScaler scaler;
  scaler.scale(1.0f);
  const char* text = "ValueError: Attempting to unscale FP16 gradients.";
  EXPECT_TRUE(has_words(error_of([&] { scaler.unscale_(optimizer); }), {text}));
  EXPECT_TRUE(has_words(error_of([&] { scaler.step(optimizer); }), {text}));
  EXPECT_EQ(wide, 3.0f);
  EXPECT_EQ(half, 0x4200);
  EXPECT_EQ(steps, 0);

  scaler.update(2.0);
  scaler.set_allow_fp16(true);
  scaler.step(optimizer);
  EXPECT_EQ(wide, 1.5f);
  EXPECT_EQ(half, 0x3e00);
  EXPECT_EQ(steps, 1);
}

// A bad list changes nothing, and unscale_() may be called again.
TEST(GradScalerErrors, BadGradientsLeaveTheOptimizerReady) {
  float good = 2.0f;
  struct Broken : Optimizer {
    std::vector<Tensor> list;
    TensorList gradients() override { return list; }
    void step() override {}
  } optimizer;
  optimizer.list = {{&good, 1, kFloat32}, {nullptr, 1, kFloat32}};
  GradScalerOptions options;
  options.init_scale = 2.0;
  GradScaler scaler(options);
  scaler.scale(1.0f);
  EXPECT_THROW(scaler.step(optimizer), Error);
  EXPECT_EQ(good, 2.0f);
  EXPECT_TRUE(has_words(
      error_of([&] { scaler.update(); }),
      {"AssertionError: No inf checks were recorded prior to update."}));
  optimizer.list.pop_back();
  scaler.unscale_(optimizer);
  EXPECT_EQ(good, 1.0f);
}

TEST(GradScalerErrors, StepMayBeCalledAgainWhenTheOptimizerThrew) {
  float gradient = 65536.0f;
  int calls = 0;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [&] {
    if (++calls == 1) throw std::runtime_error("disk full");
  });
  GradScaler scaler;
  scaler.scale(1.0f);
  EXPECT_THROW(scaler.step(optimizer), std::runtime_error);
  EXPECT_EQ(gradient, 1.0f);
  EXPECT_EQ(scaler.get_growth_tracker(), 0);
  EXPECT_EQ(scaler.last_step().scale_before, 1.0);  // no step has returned
  EXPECT_FALSE(scaler.step(optimizer).skipped);
  EXPECT_EQ(gradient, 1.0f);  // not unscaled twice
  EXPECT_EQ(calls, 2);
  scaler.update();
  EXPECT_EQ(scaler.get_growth_tracker(), 1);
}

TEST(GradScalerErrors, AFailedReductionIsNoPermissionToStep) {
  float gradient = 65536.0f;
  int steps = 0;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [&] { ++steps; });
  GradScaler scaler;
  scaler.set_found_inf_reduction(
      [](float) -> float { throw std::runtime_error("a rank is gone"); });
  scaler.scale(1.0f);
  EXPECT_THROW(scaler.step(optimizer), std::runtime_error);
  EXPECT_EQ(gradient, 1.0f);
  EXPECT_TRUE(has_words(
      error_of([&] { scaler.step(optimizer); }),
      {"AssertionError: No inf checks were recorded for this optimizer."}));
  EXPECT_EQ(steps, 0);
}

TEST(GradScalerErrors, OtherRulesNameTheUnsupportedCall) {
  GradScaler megatron(LossScaler::from_name("megatron.DynamicGradScaler"));
  EXPECT_TRUE(has_words(
      error_of([&] { megatron.set_growth_factor(3.0); }, SWAMP_UNSUPPORTED),
      {"growth_factor: got megatron.DynamicGradScaler"}));
  EXPECT_TRUE(has_words(
      error_of([&] { megatron.get_growth_interval(); }, SWAMP_UNSUPPORTED),
      {"growth_interval: got megatron.DynamicGradScaler"}));
  EXPECT_EQ(megatron.get_growth_tracker(), 0);
  GradScaler constant(LossScaler::from_name("megatron.ConstantGradScaler"));
  EXPECT_TRUE(has_words(
      error_of([&] { constant.get_growth_tracker(); }, SWAMP_UNSUPPORTED),
      {"growth_tracker: got megatron.ConstantGradScaler"}));
  // NeMo's is derived from PyTorch's.
  GradScaler nemo(LossScaler::from_name("nemo.GradScaler"));
  nemo.set_backoff_factor(0.25);
  EXPECT_EQ(nemo.get_backoff_factor(), 0.25);
}

// A rule that raises at its smallest scale does so in update(), not in step().
TEST(GradScalerErrors, TheRulesOwnErrorComesFromUpdate) {
  LossScalerOptions options;
  options.init_scale = options.min_scale = 4.0;
  options.policy = ScalerPolicy::error;
  GradScaler scaler{LossScaler(options)};
  float gradient = kInf;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [] {});
  scaler.scale(1.0f);
  const GradScalerStep step = scaler.step(optimizer);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.scale_after, 4.0);
  EXPECT_THROW(scaler.update(), ScalerError);
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.update(8.0).new_scale, 8.0);  // sets the scale directly
  EXPECT_TRUE(scaler.step(optimizer).skipped);
}

TEST(GradScalerErrors, FunctionOptimizerIsChecked) {
  float gradient = 1.0f;
  const Tensor list[] = {{&gradient, 1, kFloat32}};
  EXPECT_THROW(FunctionOptimizer(list, nullptr), Error);
  EXPECT_THROW(FunctionOptimizer(list, [] {}, {"a", "b"}), Error);
  const FunctionOptimizer named(list, [] {}, {"a"});
  EXPECT_EQ(named.gradient_name(0), "a");
  EXPECT_EQ(named.gradient_name(1), "");
}

}  // namespace
}  // namespace swamp::test
