// What a step() does and reports: several optimizers, ranks, names, outputs.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "support/formats.h"
#include "swamp/grad_scaler.h"

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

TEST(GradScalerStep, ReportsPlaceAndCount) {
  GradScaler scaler;
  Two optimizer;
  optimizer.bias = {kInf, kNan};
  scaler.scale(1.0f);
  const GradScalerStep step = scaler.step(optimizer);
  EXPECT_TRUE(step.found_inf);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.scale_before, 65536.0);
  EXPECT_EQ(step.scale_after, 32768.0);
  EXPECT_EQ(step.overflow.tensor, 1u);
  EXPECT_EQ(step.overflow.index, 0u);
  EXPECT_EQ(step.overflow.tensor_count, 1u);
  EXPECT_EQ(step.overflow.element_count, 2u);
  EXPECT_EQ(step.gradient_name, "bias");
  EXPECT_EQ(scaler.last_step().gradient_name, "bias");
  EXPECT_EQ(optimizer.steps, 0);
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
  EXPECT_EQ(optimizer.steps, 1);
  EXPECT_EQ(optimizer.weight[1], 2.0f / 16384);
}

// test_grad_scaling_multiple: the other optimizer steps, the scale backs off
// once, in either order.
TEST(GradScalerStep, SeveralOptimizersShareAScale) {
  for (const bool bad_first : {true, false}) {
    GradScaler scaler;
    Two good;
    Two bad;
    bad.weight[0] = kInf;
    scaler.scale(1.0f);
    scaler.scale(2.0f);  // one loss for each
    scaler.unscale_(good);
    const GradScalerStep first = scaler.step(bad_first ? bad : good);
    const GradScalerStep second = scaler.step(bad_first ? good : bad);
    EXPECT_EQ(first.skipped, bad_first);
    EXPECT_EQ(second.skipped, !bad_first);
    EXPECT_EQ(good.steps, 1);
    EXPECT_EQ(bad.steps, 0);
    // The effect of one overflow on the scale is in the next report.
    EXPECT_EQ(first.scale_after, bad_first ? 32768.0 : 65536.0);
    EXPECT_EQ(second.scale_after, 32768.0);
    const ScalerStep update = scaler.update();
    EXPECT_TRUE(update.found_inf);
    EXPECT_EQ(update.old_scale, 65536.0);
    EXPECT_EQ(update.new_scale, 32768.0);
  }
}

// Both overflow: found_inf is 2, which is still one overflow.
TEST(GradScalerStep, TwoOverflowsBackOffOnce) {
  GradScaler scaler;
  Two one;
  Two two;
  one.bias[1] = two.bias[1] = kNan;
  scaler.scale(1.0f);
  EXPECT_EQ(scaler.step(one).scale_after, 32768.0);
  EXPECT_EQ(scaler.step(two).scale_after, 32768.0);
  EXPECT_EQ(scaler.update().new_scale, 32768.0);
}

TEST(GradScalerStep, RanksDecideTogether) {
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

// Static scalers of some systems take the step in spite of an overflow.
TEST(GradScalerStep, TheRuleDecidesWhetherToSkip) {
  GradScaler scaler(LossScaler::from_name("deepspeed.LossScaler"));
  Two optimizer;
  optimizer.bias[0] = kInf;
  scaler.scale(1.0f);
  const GradScalerStep step = scaler.step(optimizer);
  EXPECT_TRUE(step.found_inf);
  EXPECT_FALSE(step.skipped);
  EXPECT_EQ(optimizer.steps, 1);
}

// Zero-size gradients are gradients: PyTorch records a check of them.
TEST(GradScalerStep, EmptyGradientsAreChecked) {
  GradScaler scaler;
  FunctionOptimizer optimizer(Tensor{nullptr, 0, kFloat32}, [] {});
  scaler.scale(1.0f);
  EXPECT_FALSE(scaler.step(optimizer).found_inf);
  EXPECT_NO_THROW(scaler.update());
}

// Overlapping arrays are an error only in transfer mode check.
TEST(GradScalerStep, RunsOnTheMachineItIsGiven) {
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
TEST(GradScalerStep, MayBeCalledFromWithinTheOptimizer) {
  GradScaler scaler;
  float gradient = 1.0f;
  double seen = 0.0;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [&] {
    seen = scaler.get_scale();
    scaler.update();
  });
  scaler.scale(1.0f);
  scaler.step(optimizer);
  EXPECT_EQ(seen, 65536.0);
  EXPECT_NO_THROW(scaler.step(optimizer));
  EXPECT_EQ(scaler.get_growth_tracker(), 2);
}

TEST(GradScalerStep, MovesWithItsState) {
  GradScaler from;
  Two optimizer;
  from.scale(1.0f);
  from.unscale_(optimizer);
  GradScaler to(std::move(from));
  EXPECT_THROW(to.unscale_(optimizer), ScalerError);
  EXPECT_FALSE(to.step(optimizer).skipped);
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
