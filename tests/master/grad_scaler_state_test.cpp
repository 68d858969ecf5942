// GradScaler's numbers and checkpoints (PyTorch's test_pickle_gradscaler,
// test_grad_scaling_state_dict), and what it does when not enabled.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
    EXPECT_EQ(to.update().new_scale, 12.0);  // the tracker went on
  }
}

// As torch.save() or json.dumps() would have it, without swamp's own object.
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

// The counter passes an interval that was set below it, and never meets it.
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

}  // namespace
}  // namespace swamp::test
