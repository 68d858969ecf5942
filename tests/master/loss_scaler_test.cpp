// What the golden traces do not say about loss scalers: names, options, the
// report of a step, raw values of found_inf.
#include "swamp/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace swamp::test {
namespace {

// error_of() is the text of what `body` throws.
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SWAMP_INVALID_ARGUMENT);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LossScaler, EveryNameHasDefaults) {
  const std::vector<std::string> names = LossScaler::names();
  EXPECT_EQ(names.size(), 35u);
  for (const std::string& name : names) {
    LossScaler scaler = LossScaler::from_name(name);
    EXPECT_EQ(scaler.name(), name);
    EXPECT_GE(scaler.scale(), 1.0) << name;
    EXPECT_EQ(scaler.trackers().size(), scaler.tracker_names().size());
    EXPECT_NO_THROW(scaler.update(0.0f)) << name;
  }
}

TEST(LossScaler, BadNamesAndOptionsAreNamed) {
  EXPECT_EQ(
      error_of([] {
        LossScaler::from_name("amp");
      }).rfind("scaler: got 'amp', expected one of apex.amp.LossScaler", 0),
      0u);
  EXPECT_EQ(error_of([] {
              LossScaler::from_name("keras.LossScaleOptimizer",
                                    {{"window", std::int64_t{3}}});
            }),
            "keras.LossScaleOptimizer: no option 'window', expected one of "
            "initial_scale, dynamic_growth_steps");
  EXPECT_EQ(error_of([] {
              LossScaler::from_name("torch.amp.GradScaler",
                                    {{"growth_interval", std::string("x")}});
            }),
            "torch.amp.GradScaler: growth_interval: got 'x', expected a "
            "number");
  EXPECT_EQ(error_of([] {
              LossScaler::from_name("deepspeed.DynamicLossScaler",
                                    {{"consecutive_hysteresis", 1.0}});
            }),
            "deepspeed.DynamicLossScaler: consecutive_hysteresis: got 1.0, "
            "expected true or false");
  EXPECT_EQ(error_of([] {
              LossScaler::from_name("torch.amp.GradScaler",
                                    {{"init_scale", std::monostate()}});
            }),
            "torch.amp.GradScaler: init_scale: got None, expected a number");
}

TEST(LossScaler, BadJsonIsAnError) {
  for (const char* text :
       {"", "[]", "3", "{", "{\"a\":}", "{\"a\":{\"b\":1}}", "{\"a\":[1.5]}",
        "{\"a\":[\"b\"]}", "{\"a\":1e999}", "{\"a\":[[[[[[[[[[1]]]]]]]]]]}"}) {
    EXPECT_THROW(scaler_options_from_json(text), Error) << text;
  }
  EXPECT_THROW(scaler_options_from_json(std::string("{}\0", 3)), Error);
  const ScalerOptions options = scaler_options_from_json(
      R"({"a":"inf","b":1,"c":1.0,"d":null,"e":true,"f":[1,2],"g":"word"})");
  EXPECT_EQ(std::get<double>(options.at("a")), HUGE_VAL);
  EXPECT_EQ(std::get<std::int64_t>(options.at("b")), 1);
  EXPECT_EQ(std::get<double>(options.at("c")), 1.0);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(options.at("d")));
  EXPECT_TRUE(std::get<bool>(options.at("e")));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(options.at("f")),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(std::get<std::string>(options.at("g")), "word");
}

TEST(LossScaler, InverseIsRoundedOnce) {
  for (const double scale : {3.0, 65536.0, 0x1.fffffep+127, 12345.678}) {
    LossScaler scaler =
        LossScaler::from_name("torch.amp.GradScaler", {{"init_scale", scale}});
    EXPECT_EQ(scaler.inv_scale(),
              static_cast<float>(
                  1.0 / static_cast<double>(static_cast<float>(scale))));
  }
  // A Python float is not rounded before.
  EXPECT_EQ(LossScaler::from_name("fairseq.DynamicLossScaler",
                                  {{"init_scale", 1 + 0x1p-24}})
                .inv_scale(),
            static_cast<float>(1.0 / (1 + 0x1p-24)));
}

TEST(LossScaler, StepSaysWhatWasDone) {
  LossScaler scaler = LossScaler::from_name(
      "torch.amp.GradScaler", {{"growth_interval", std::int64_t{1}}});
  ScalerStep step = scaler.update(1.0f);
  EXPECT_TRUE(step.found_inf);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.old_scale, 65536.0);
  EXPECT_EQ(step.new_scale, 32768.0);
  step = scaler.update(0.0f);
  EXPECT_FALSE(step.found_inf);
  EXPECT_FALSE(step.skipped);
  EXPECT_EQ(step.old_scale, 32768.0);
  EXPECT_EQ(step.new_scale, 65536.0);
  EXPECT_EQ(step.warning, "");
}

// Some systems let the optimizer step although there was an overflow.
TEST(LossScaler, SkippedIsTheSystemsOwn) {
  const auto skipped = [](const char* name, const ScalerOptions& options) {
    const ScalerStep step = LossScaler::from_name(name, options).update(1.0f);
    EXPECT_TRUE(step.found_inf);
    return step.skipped;
  };
  EXPECT_TRUE(skipped("megatron.ConstantGradScaler", {}));
  EXPECT_TRUE(skipped("apex.amp.LossScaler", {}));
  EXPECT_FALSE(skipped("apex.amp.LossScaler", {{"loss_scale", 128.0}}));
  EXPECT_FALSE(skipped("deepspeed.LossScaler", {}));
  EXPECT_FALSE(skipped("torch_npu.GradScaler", {{"dynamic", false}}));
  EXPECT_FALSE(skipped("mindspore.FixedLossScaleManager",
                       {{"drop_overflow_update", false}}));
  EXPECT_TRUE(skipped("mindspore.FixedLossScaleManager", {}));
}

// found_inf summed over two ranks, and a nan.
TEST(LossScaler, RawFoundInf) {
  const auto halves = [](const char* name, float found_inf) {
    return LossScaler::from_name(name).update(found_inf).new_scale == 32768.0;
  };
  EXPECT_TRUE(halves("torch.amp.GradScaler", 2.0f));
  EXPECT_TRUE(halves("torch.amp.GradScaler", 0.5f));
  EXPECT_TRUE(halves("torch.amp.GradScaler", std::nanf("")));
  EXPECT_TRUE(halves("torch.fsdp.ShardedGradScaler[cpu]", 2.0f));
  EXPECT_FALSE(halves("torch.fsdp.ShardedGradScaler[cpu]", 0.5f));
  EXPECT_TRUE(halves("fairscale.ShardedGradScaler[cpu]", 1.0f));
  EXPECT_FALSE(halves("fairscale.ShardedGradScaler[cpu]", 2.0f));
  // apex's kernel: a nan backs off without touching the hysteresis.
  EXPECT_TRUE(halves("apex.update_scale_hysteresis", std::nanf("")));
}

TEST(LossScaler, ZeroIntervalsAreErrorsOfTheOriginal) {
  LossScaler scaler = LossScaler::from_name("fairseq.DynamicLossScaler",
                                            {{"scale_window", 0.0}});
  EXPECT_EQ(error_of([&] { scaler.update(0.0f); }),
            "fairseq.DynamicLossScaler: ZeroDivisionError: integer modulo by "
            "zero");
}

TEST(LossScaler, FairseqDividesByZeroAfterItHasGivenUp) {
  LossScaler scaler =
      LossScaler::from_name("fairseq.DynamicLossScaler",
                            {{"init_scale", 1.0}, {"min_loss_scale", 0.5}});
  EXPECT_NE(error_of([&] { scaler.update(1.0f); }).find("reached (0.5)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { scaler.update(1.0f); }).find("ZeroDivisionError"),
            std::string::npos);
}

}  // namespace
}  // namespace swamp::test
