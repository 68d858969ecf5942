// GradScaler beyond PyTorch's records (grad_scaler_golden_test.cpp): reports,
// ranks, other rules, swamp's own errors and the state after them, threads.
#include "swamp/grad_scaler.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/errors.h"

namespace swamp::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Two is an optimizer of two gradients.
struct Two : Optimizer {
  std::array<float, 4> weight{1, 2, 3, 4};
  std::array<float, 2> bias{5, 6};
  int steps = 0;

  TensorList gradients() override {
    list_ = {Tensor{weight.data(), weight.size(), kFloat32},
             Tensor{bias.data(), bias.size(), kFloat32}};
    return list_;
  }
  std::string gradient_name(std::size_t index) const override {
    return index == 0 ? "weight" : "bias";
  }
  void step() override { ++steps; }

 private:
  std::array<Tensor, 2> list_{};
};

// One is an optimizer of one gradient of one element; `in_step` may throw.
struct One : Optimizer {
  explicit One(float value = 1.0f) : gradient(value) {}

  float gradient;
  int steps = 0;
  std::function<void()> in_step = [] {};

  TensorList gradients() override { return list_; }
  void step() override {
    in_step();
    ++steps;
  }

 private:
  Tensor list_{&gradient, 1, kFloat32};
};

// ---- What a step reports.

TEST(GradScaler, ReportsPlaceAndCount) {
  GradScaler scaler;
  Two optimizer;
  optimizer.bias = {kInf, kNan};
  scaler.scale(1.0f);
  const GradScalerStep step = scaler.step(optimizer);
  EXPECT_TRUE(step.found_inf && step.skipped);
  EXPECT_EQ(step.scale_before, 65536.0);
  EXPECT_EQ(step.scale_after, 32768.0);
  EXPECT_EQ(step.overflow.tensor, 1u);
  EXPECT_EQ(step.overflow.index, 0u);
  EXPECT_EQ(step.overflow.tensor_count, 1u);
  EXPECT_EQ(step.overflow.element_count, 2u);
  EXPECT_EQ(step.gradient_name, "bias");
  EXPECT_EQ(scaler.last_step().gradient_name, "bias");
  EXPECT_EQ(scaler.get_scale(), 65536.0);  // update() changes it
  EXPECT_EQ(scaler.update().new_scale, 32768.0);

  optimizer.weight[3] = kInf;
  EXPECT_EQ(scaler.step(optimizer).gradient_name, "weight");
  EXPECT_EQ(scaler.last_step().overflow.index, 3u);
  scaler.update();

  optimizer = Two();
  const GradScalerStep clean = scaler.step(optimizer);
  EXPECT_FALSE(clean.found_inf || clean.skipped);
  EXPECT_EQ(clean.overflow.element_count, 0u);
  EXPECT_EQ(clean.gradient_name, "");
}

// The effect of an overflow on the scale is in its report and the next ones; a
// second overflow has none.
TEST(GradScaler, SeveralOptimizersShareAScale) {
  for (const char* overflow : {"01", "10", "11"}) {
    GradScaler scaler;
    One optimizers[2];
    scaler.scale(1.0f);
    double after = 65536.0;
    for (int i = 0; i < 2; ++i) {
      const bool bad = overflow[i] == '1';
      if (bad) optimizers[i].gradient = kNan;
      if (bad) after = 32768.0;
      const GradScalerStep step = scaler.step(optimizers[i]);
      EXPECT_EQ(step.skipped, bad) << overflow;
      EXPECT_EQ(step.scale_after, after) << overflow;
    }
    const ScalerStep update = scaler.update();
    EXPECT_TRUE(update.found_inf);
    EXPECT_EQ(update.old_scale, 65536.0);
    EXPECT_EQ(update.new_scale, 32768.0);
  }
}

TEST(GradScaler, RanksDecideTogether) {
  GradScaler scaler;
  Two optimizer;
  float elsewhere = 1.0f;
  std::vector<float> asked;
  scaler.set_found_inf_reduction([&](float found_inf) {
    asked.push_back(found_inf);
    return elsewhere;
  });
  scaler.scale(1.0f);
  GradScalerStep step = scaler.step(optimizer);
  EXPECT_TRUE(step.found_inf && step.skipped);
  EXPECT_EQ(step.overflow.element_count, 0u);  // not on this rank
  EXPECT_EQ(step.gradient_name, "");
  EXPECT_EQ(scaler.update().new_scale, 32768.0);
  elsewhere = kNan;
  EXPECT_TRUE(scaler.step(optimizer).skipped);
  scaler.update();
  elsewhere = 0.0f;
  scaler.unscale_(optimizer);
  EXPECT_FALSE(scaler.step(optimizer).skipped);
  scaler.update();
  // A rank without gradients takes part, too.
  FunctionOptimizer none({}, [] {});
  EXPECT_FALSE(scaler.step(none).skipped);
  EXPECT_EQ(asked, (std::vector<float>{0, 0, 0, 0}));
}

// Zero-size gradients are gradients: PyTorch records a check of them.
TEST(GradScaler, EmptyGradientsAreChecked) {
  GradScaler scaler;
  FunctionOptimizer optimizer(Tensor{nullptr, 0, kFloat32}, [] {});
  scaler.scale(1.0f);
  EXPECT_FALSE(scaler.step(optimizer).found_inf);
  EXPECT_NO_THROW(scaler.update());
}

// Overlapping arrays are an error only in transfer mode check.
TEST(GradScaler, RunsOnTheMachineItIsGiven) {
  if (Machine::default_machine().info().chosen.transfer == "check") {
    GTEST_SKIP() << "the default machine refuses what only the given one may";
  }
  MachineConfig config;
  config.backend = "serial";
  config.transfer = "check";
  Machine machine(config);
  GradScaler scaler;
  float gradient[] = {1, 2, 3};
  const Tensor list[] = {{gradient, 2, kFloat32}, {gradient + 1, 2, kFloat32}};
  FunctionOptimizer optimizer(list, [] {});
  scaler.scale(1.0f);
  EXPECT_NO_THROW(scaler.unscale_(optimizer));
  scaler.update(1.0);
  scaler.scale_(list);
  scaler.set_machine(&machine);
  scaler.update(2.0);
  EXPECT_THROW(scaler.unscale_(optimizer), Error);
  EXPECT_THROW(scaler.scale_(list), Error);
  scaler.set_machine(nullptr);
  EXPECT_NO_THROW(scaler.unscale_(optimizer));
}

// An update() from within the optimizer's step() begins a new iteration.
TEST(GradScaler, MayBeCalledFromWithinTheOptimizer) {
  GradScaler scaler;
  double seen = 0.0;
  One optimizer;
  optimizer.in_step = [&] {
    seen = scaler.get_scale();
    scaler.update();
  };
  scaler.scale(1.0f);
  scaler.step(optimizer);
  EXPECT_EQ(seen, 65536.0);
  EXPECT_NO_THROW(scaler.step(optimizer));
  EXPECT_EQ(scaler.get_growth_tracker(), 2);
}

TEST(GradScaler, MovesWithItsState) {
  GradScaler from;
  One optimizer;
  from.scale(1.0f);
  from.unscale_(optimizer);
  GradScaler to(std::move(from));
  EXPECT_THROW(to.unscale_(optimizer), ScalerError);
  EXPECT_FALSE(to.step(optimizer).skipped);
}

// ---- Its numbers.

// A state as PyTorch saves it, without swamp's own object.
TEST(GradScaler, LoadsPyTorchsState) {
  GradScaler scaler;
  scaler.load_state_dict(
      R"({"scale":3.0,"growth_factor":4.0,"backoff_factor":0.25,)"
      R"("growth_interval":20,"_growth_tracker":17})");
  const std::string before = scaler.state_dict();
  EXPECT_EQ(
      before.rfind(R"({"scale":3.0,"growth_factor":4.0,"backoff_factor":0.25,)"
                   R"("growth_interval":20,"_growth_tracker":17,)",
                   0),
      0u);
  EXPECT_EQ(scaler.get_scale(), 3.0);
  EXPECT_EQ(scaler.get_growth_factor(), 4.0);
  EXPECT_EQ(scaler.get_backoff_factor(), 0.25);
  EXPECT_EQ(scaler.get_growth_interval(), 20);
  EXPECT_EQ(scaler.get_growth_tracker(), 17);
  EXPECT_THROW(scaler.load_state_dict(R"({"scale":1.0})"), Error);
  EXPECT_THROW(scaler.load_state_dict("{}"), ScalerError);
  EXPECT_EQ(scaler.state_dict(), before);
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  scaler.set_growth_interval(kNever);
  EXPECT_EQ(scaler.get_growth_interval(), kNever);
}

TEST(GradScaler, NotEnabled) {
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler(options);
  EXPECT_FALSE(scaler.is_enabled());
  EXPECT_EQ(scaler.update(3.0).new_scale, 1.0);
  EXPECT_EQ(scaler.state_dict(), "{}");
  EXPECT_EQ(error_of([&] { scaler.get_growth_factor(); }),
            "GradScaler: AttributeError: 'GradScaler' object has no attribute "
            "'_growth_factor'");
}

// Static scalers of some systems take the step in spite of an overflow.
TEST(GradScaler, TheRuleDecidesWhetherToSkip) {
  GradScaler scaler(LossScaler::from_name("deepspeed.LossScaler"));
  One optimizer(kInf);
  scaler.scale(1.0f);
  const GradScalerStep step = scaler.step(optimizer);
  EXPECT_TRUE(step.found_inf);
  EXPECT_FALSE(step.skipped);
  EXPECT_EQ(optimizer.steps, 1);
}

TEST(GradScaler, OtherRulesNameTheUnsupportedCall) {
  GradScaler megatron(LossScaler::from_name("megatron.DynamicGradScaler"));
  GradScaler constant(LossScaler::from_name("megatron.ConstantGradScaler"));
  expect_refused(
      {{[&] { megatron.set_growth_factor(3.0); },
        "growth_factor: got megatron.DynamicGradScaler", SWAMP_UNSUPPORTED},
       {[&] { megatron.get_growth_interval(); },
        "growth_interval: got megatron.DynamicGradScaler", SWAMP_UNSUPPORTED},
       {[&] { constant.get_growth_tracker(); },
        "growth_tracker: got megatron.ConstantGradScaler", SWAMP_UNSUPPORTED}});
  EXPECT_EQ(megatron.get_growth_tracker(), 0);
  // NeMo's is derived from PyTorch's.
  GradScaler nemo(LossScaler::from_name("nemo.GradScaler"));
  nemo.set_backoff_factor(0.25);
  EXPECT_EQ(nemo.get_backoff_factor(), 0.25);
}

// ---- Errors, and the state after them.

TEST(GradScalerErrors, Options) {
  using Option = double GradScalerOptions::*;
  for (const auto& [option, value, text] :
       {std::tuple<Option, double, const char*>{
            &GradScalerOptions::growth_factor, 1.0,
            "AssertionError: The growth factor must be > 1.0."},
        {&GradScalerOptions::backoff_factor, 1.0,
         "AssertionError: The backoff factor must be < 1.0."},
        // PyTorch accepts these, and then every gradient is nan.
        {&GradScalerOptions::init_scale, std::nan(""), "init_scale: got nan"},
        {&GradScalerOptions::init_scale, HUGE_VAL, "expected a finite number"},
        {&GradScalerOptions::init_scale, -HUGE_VAL, "init_scale: got -inf"}}) {
    GradScalerOptions options;
    options.*option = value;
    expect_refused([&] { GradScaler scaler(options); }, {text});
    options.enabled = false;
    EXPECT_NO_THROW(GradScaler scaler(options));
  }
  // PyTorch accepts these.
  GradScalerOptions odd;
  odd.init_scale = -1.0;
  odd.backoff_factor = -2.0;
  odd.growth_interval = 0;
  EXPECT_NO_THROW(GradScaler scaler(odd));
}

TEST(GradScalerErrors, NanIsRefused) {
  const double nan = std::nan("");
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
  expect_refused([&] { scaler.unscale_(optimizer); }, {text});
  expect_refused([&] { scaler.step(optimizer); }, {text});
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
  GradScaler scaler;
  scaler.scale(1.0f);
  scaler.update(2.0);
  EXPECT_THROW(scaler.step(optimizer), Error);
  EXPECT_EQ(good, 2.0f);
  expect_refused(
      [&] { scaler.update(); },
      {"AssertionError: No inf checks were recorded prior to update."});
  optimizer.list.pop_back();
  scaler.unscale_(optimizer);
  EXPECT_EQ(good, 1.0f);
}

TEST(GradScalerErrors, AStepThatThrew) {
  One optimizer(65536.0f);
  optimizer.in_step = [] { throw std::runtime_error("disk full"); };
  GradScaler scaler;
  scaler.scale(1.0f);
  EXPECT_THROW(scaler.step(optimizer), std::runtime_error);
  EXPECT_EQ(optimizer.gradient, 1.0f);
  EXPECT_EQ(scaler.last_step().scale_before, 1.0);  // no step has returned
  optimizer.in_step = [] {};
  EXPECT_FALSE(scaler.step(optimizer).skipped);
  EXPECT_EQ(optimizer.gradient, 1.0f);  // not unscaled twice
}

TEST(GradScalerErrors, AFailedReductionIsNoPermissionToStep) {
  One optimizer(65536.0f);
  GradScaler scaler;
  scaler.set_found_inf_reduction(
      [](float) -> float { throw std::runtime_error("a rank is gone"); });
  scaler.scale(1.0f);
  EXPECT_THROW(scaler.step(optimizer), std::runtime_error);
  EXPECT_EQ(optimizer.gradient, 1.0f);
  expect_refused(
      [&] { scaler.step(optimizer); },
      {"AssertionError: No inf checks were recorded for this optimizer."});
  EXPECT_EQ(optimizer.steps, 0);
}

// A rule that raises at its smallest scale does so in update(), not in step().
TEST(GradScalerErrors, TheRulesOwnErrorComesFromUpdate) {
  LossScalerOptions options;
  options.init_scale = options.min_scale = 4.0;
  options.policy = ScalerPolicy::error;
  GradScaler scaler{LossScaler(options)};
  One optimizer(kInf);
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

// ---- Reading a GradScaler from other threads while it works.

// A reader must see consistent numbers: a scale that some update() set, and a
// report of one step.
bool looks_right(const GradScaler& scaler) {
  const double scale = scaler.get_scale();
  int exponent = 0;
  if (std::frexp(scale, &exponent) != 0.5) return false;
  const GradScalerStep step = scaler.last_step();
  if (step.found_inf != step.skipped) return false;
  if (step.found_inf != (step.overflow.element_count != 0)) return false;
  if (step.gradient_name !=
      (step.found_inf ? "a name that is allocated" : "")) {
    return false;
  }
  if (step.found_inf && step.scale_after != step.scale_before / 2) return false;
  GradScaler copy;
  copy.load_state_dict(scaler.state_dict());
  return scaler.get_growth_tracker() >= 0 && scaler.is_enabled() &&
         scaler.get_growth_factor() == 2.0 &&
         scaler.get_backoff_factor() == 0.5 &&
         scaler.get_growth_interval() >= 2;
}

TEST(GradScalerThreads, ReadersWhileItSteps) {
  constexpr int kReaders = 3;
  constexpr int kSteps = 300;
  GradScalerOptions options;
  options.growth_interval = 2;
  GradScaler scaler(options);
  std::vector<float> gradient(1000, 1.0f);
  FunctionOptimizer optimizer(
      Tensor{gradient.data(), gradient.size(), kFloat32},
      [] { std::this_thread::yield(); }, {"a name that is allocated"});

  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::atomic<int> reads{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&] {
      do {
        if (!looks_right(scaler)) wrong.fetch_add(1);
        reads.fetch_add(1);
      } while (!done.load());
    });
  }
  while (reads.load() == 0) std::this_thread::yield();
  for (int step = 0; step < kSteps; ++step) {
    gradient[500] =
        step % 3 == 0 ? std::numeric_limits<float>::infinity() : 1.0f;
    scaler.scale(1.0f);
    if (step % 2 == 0) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    if (step % 10 == 0) scaler.set_growth_interval(2);
    if (step % 50 == 0) scaler.load_state_dict(scaler.state_dict());
  }
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GE(reads.load(), 1);
}

// No lock is held during the optimizer's step and the reduction of ranks: a
// reader can finish while they wait for it.
TEST(GradScalerThreads, AReaderDoesNotWaitForTheStep) {
  GradScaler scaler;
  const auto ask = [&] {
    double scale = 0.0;
    std::thread reader([&] { scale = scaler.get_scale(); });
    reader.join();
    return scale;
  };
  double in_step = 0.0;
  double in_reduction = 0.0;
  float gradient = 1.0f;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32},
                              [&] { in_step = ask(); });
  scaler.set_found_inf_reduction([&](float found_inf) {
    in_reduction = ask();
    return found_inf;
  });
  scaler.scale(1.0f);
  scaler.step(optimizer);
  EXPECT_EQ(in_step, 65536.0);
  EXPECT_EQ(in_reduction, 65536.0);
}

}  // namespace
}  // namespace swamp::test
