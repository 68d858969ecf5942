// swamp's own scaler: bounds, stop before inf, hysteresis, window list, policy.
#include <gtest/gtest.h>

#include <cmath>

#include "swamp/loss_scaler.h"

namespace swamp::test {
namespace {

// run() gives the scale after each step; '!' is an overflow.
std::vector<double> run(LossScaler& scaler, const std::string& steps) {
  std::vector<double> scales;
  for (const char step : steps) {
    scales.push_back(scaler.update(step == '!' ? 1.0f : 0.0f).new_scale);
  }
  return scales;
}

TEST(OwnScaler, StaysWithinItsBounds) {
  LossScalerOptions options;
  options.init_scale = 1.0;
  options.growth_interval = 1;
  options.min_scale = 0.75;
  options.max_scale = 3.0;
  LossScaler scaler(options);
  EXPECT_EQ(run(scaler, "!!...!"),
            (std::vector<double>{0.75, 0.75, 1.5, 3.0, 3.0, 1.5}));
}

TEST(OwnScaler, StopsBeforeInf) {
  LossScalerOptions options;
  options.init_scale = 0x1p127;
  options.growth_interval = 1;
  LossScaler stops(options);
  EXPECT_EQ(run(stops, ".!"), (std::vector<double>{0x1p127, 0x1p126}));
  options.stop_before_inf = false;
  LossScaler grows(options);
  EXPECT_EQ(run(grows, "."), (std::vector<double>{HUGE_VAL}));
}

TEST(OwnScaler, NeverBecomesZero) {
  LossScaler scaler;
  EXPECT_EQ(run(scaler, std::string(300, '!')).back(), 0x1p-126);
}

TEST(OwnScaler, HysteresisIsRefilledAsAsked) {
  LossScalerOptions options;
  options.init_scale = 64.0;
  options.growth_interval = 3;
  options.hysteresis = 2;
  LossScaler growth(options);
  EXPECT_EQ(run(growth, "!.!!...!"),
            (std::vector<double>{64, 64, 32, 16, 16, 16, 32, 32}));
  options.hysteresis_refill = ScalerRefill::clean;
  LossScaler clean(options);
  EXPECT_EQ(run(clean, "!.!!...!"),
            (std::vector<double>{64, 64, 64, 32, 32, 32, 64, 64}));
}

TEST(OwnScaler, WindowListMoves) {
  LossScalerOptions options;
  options.init_scale = 1.0;
  options.window_list = {1, 2};
  LossScaler scaler(options);
  // Three growths in windows of 1, then windows of 2; three overflows go back.
  EXPECT_EQ(run(scaler, "...."), (std::vector<double>{2, 4, 8, 8}));
  EXPECT_EQ(run(scaler, ".!!!."), (std::vector<double>{16, 8, 4, 2, 4}));
}

TEST(OwnScaler, PolicyAtTheFloor) {
  LossScalerOptions options;
  options.init_scale = 2.0;
  options.min_scale = 1.0;
  LossScaler clamp(options);
  EXPECT_EQ(run(clamp, "!!!"), (std::vector<double>{1, 1, 1}));
  options.policy = ScalerPolicy::warn;
  LossScaler warn(options);
  EXPECT_EQ(warn.update(1.0f).warning, "");
  EXPECT_EQ(warn.update(1.0f).warning,
            "overflow at the smallest loss scale, min_scale 1.0");
  EXPECT_EQ(warn.update(0.0f).warning, "");
  options.policy = ScalerPolicy::error;
  LossScaler error(options);
  EXPECT_EQ(error.update(1.0f).new_scale, 1.0);
  const std::string before = error.state_dict();
  EXPECT_THROW(error.update(1.0f), ScalerError);
  EXPECT_EQ(error.state_dict(), before);
  EXPECT_NO_THROW(error.update(0.0f));
}

TEST(OwnScaler, PolicyAfterOverflowsInARow) {
  LossScalerOptions options;
  options.max_overflows = 3;
  options.policy = ScalerPolicy::error;
  LossScaler scaler(options);
  EXPECT_EQ(run(scaler, "!!.!!").back(), 4096.0);
  try {
    scaler.update(1.0f);
    FAIL() << "no error";
  } catch (const ScalerError& error) {
    EXPECT_EQ(error.message(), "3 overflows in a row, max_overflows 3");
  }
}

TEST(OwnScaler, BadOptionsNameOptionAndValue) {
  const auto text = [](void (*spoil)(LossScalerOptions&)) -> std::string {
    LossScalerOptions options;
    spoil(options);
    try {
      LossScaler scaler(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  using O = LossScalerOptions;
  EXPECT_EQ(
      text([](O& o) { o.growth_factor = 1.0; }),
      "swamp.LossScaler: growth_factor: got 1.0, expected a finite number "
      "above 1");
  EXPECT_EQ(text([](O& o) { o.backoff_factor = 1.0; }),
            "swamp.LossScaler: backoff_factor: got 1.0, expected a number "
            "between 0 and 1");
  EXPECT_EQ(text([](O& o) { o.growth_interval = 0; }),
            "swamp.LossScaler: growth_interval: got 0.0, expected an integer, "
            "at least 1");
  EXPECT_EQ(text([](O& o) { o.init_scale = 0.5, o.min_scale = 1; }),
            "swamp.LossScaler: init_scale: got 0.5, expected min_scale to "
            "max_scale, 1.0 to inf, and at most 2^127");
  EXPECT_EQ(text([](O& o) { o.max_scale = 0.5, o.min_scale = 1; }),
            "swamp.LossScaler: max_scale: got 0.5, expected 0 (none) or at "
            "least min_scale, 1.0");
  EXPECT_EQ(text([](O& o) { o.hysteresis = -1; }),
            "swamp.LossScaler: hysteresis: got -1.0, expected an integer, at "
            "least 1");
  EXPECT_EQ(text([](O& o) {
              o.window_list = {5, 5};
            }),
            "swamp.LossScaler: window_list: got [5, 5], expected rising "
            "integers, the first at least 1");
  EXPECT_EQ(text([](O& o) { o.policy = static_cast<ScalerPolicy>(7); }),
            "swamp.LossScaler: policy: got 7, which is none of the enum");
  EXPECT_NE(text([](O& o) { o.min_scale = std::nan(""); }).find("min_scale"),
            std::string::npos);
}

TEST(OwnScaler, WordsByName) {
  EXPECT_THROW(LossScaler::from_name("swamp.LossScaler",
                                     {{"policy", std::string("stop")}}),
               Error);
  EXPECT_NO_THROW(LossScaler::from_name("swamp.LossScaler",
                                        {{"policy", std::string("warn")}}));
}

}  // namespace
}  // namespace swamp::test
