// What the golden traces of loss scalers do not cover: names, options, the
// report of a step, raw values of found_inf, checkpoints.
#include "swamp/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/comma_locale.h"
#include "support/errors.h"

namespace swamp::test {
namespace {

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
  const struct {
    const char* name;
    ScalerOptions options;
    const char* text;  // its beginning
  } rows[] = {
      {"amp", {}, "scaler: got 'amp', expected one of apex.amp.LossScaler"},
      {"keras.LossScaleOptimizer",
       {{"window", std::int64_t{3}}},
       "keras.LossScaleOptimizer: got the option 'window', expected one of "
       "initial_scale, dynamic_growth_steps"},
      {"torch.amp.GradScaler",
       {{"growth_interval", std::string("x")}},
       "torch.amp.GradScaler: growth_interval: got 'x', expected a number"},
      {"deepspeed.DynamicLossScaler",
       {{"consecutive_hysteresis", 1.0}},
       "deepspeed.DynamicLossScaler: consecutive_hysteresis: got 1.0, expected "
       "true or false"},
      {"torch.amp.GradScaler",
       {{"init_scale", std::monostate()}},
       "torch.amp.GradScaler: init_scale: got None, expected a number"},
      {"torch.amp.GradScaler",
       {{"growth_factor", std::nan("")}},
       "torch.amp.GradScaler: AssertionError: The growth factor must be > "
       "1.0."},
      {"torch.amp.GradScaler",
       {{"growth_interval", std::nan("")}},
       "torch.amp.GradScaler: growth_interval: got nan, expected a number"},
      {"keras.LossScaleOptimizer",
       {{"dynamic_growth_steps", std::nan("")}},
       "keras.LossScaleOptimizer: dynamic_growth_steps: got nan, expected"},
      {"deepspeed.LossScaler",
       {{"scale", HUGE_VAL}},
       "deepspeed.LossScaler: scale: got inf, expected a finite number"},
      {"torch.fsdp.ShardedGradScaler[cpu]",
       {{"init_scale", -HUGE_VAL}},
       "torch.fsdp.ShardedGradScaler[cpu]: init_scale: got -inf, expected a "
       "finite number"}};
  for (const auto& row : rows) {
    EXPECT_EQ(error_of([&] {
                LossScaler::from_name(row.name, row.options);
              }).rfind(row.text, 0),
              0u)
        << row.text;
  }
}

// Every number of every scaler.
TEST(LossScaler, NanIsAnError) {
  for (const std::string& name : LossScaler::names()) {
    const std::string valid = error_of([&] {
      LossScaler::from_name(name, {{"", std::int64_t{0}}});
    });
    std::string names = valid.substr(valid.find("expected one of ") + 16);
    for (names += ", "; !names.empty(); names.erase(0, names.find(", ") + 2)) {
      const std::string option = names.substr(0, names.find(", "));
      const auto error = [&](const ScalerValue& value) {
        return error_of([&] {
          LossScaler::from_name(name, {{option, value}});
        });
      };
      EXPECT_NE(error(std::nan("")), "") << name << " " << option;
      if (option.find("scale") == option.size() - 5 && option[1] != 'a' &&
          option.find("min") == std::string::npos) {
        EXPECT_NE(error(HUGE_VAL), "") << name << " " << option;
      }
    }
  }
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

TEST(LossScaler, StepReportsItsEffect) {
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

// Some systems take the step in spite of an overflow.
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

// swamp's own scaler: bounds, stop before inf, hysteresis, window list, policy.

// run() returns the scale after each step; '!' is an overflow.
std::vector<double> run(LossScaler& scaler, const std::string& steps) {
  std::vector<double> scales;
  for (const char step : steps) {
    scales.push_back(scaler.update(step == '!' ? 1.0f : 0.0f).new_scale);
  }
  return scales;
}

TEST(OwnScaler, Scales) {
  using O = LossScalerOptions;
  const struct {
    const char* text;
    void (*set)(O& options);
    std::string steps;
    std::vector<double> scales;  // the last ones
  } rows[] = {
      {"bounds",
       [](O& o) {
         o.init_scale = 1, o.growth_interval = 1, o.min_scale = 0.75,
         o.max_scale = 3;
       },
       "!!...!",
       {0.75, 0.75, 1.5, 3.0, 3.0, 1.5}},
      {"stops before inf",
       [](O& o) { o.init_scale = 0x1p127, o.growth_interval = 1; },
       ".!",
       {0x1p127, 0x1p126}},
      {"grows to inf",
       [](O& o) {
         o.init_scale = 0x1p127, o.growth_interval = 1,
         o.stop_before_inf = false;
       },
       ".",
       {HUGE_VAL}},
      {"never 0", [](O&) {}, std::string(300, '!'), {0x1p-126}},
      {"hysteresis, refilled by a growth",
       [](O& o) { o.init_scale = 64, o.growth_interval = 3, o.hysteresis = 2; },
       "!.!!...!",
       {64, 64, 32, 16, 16, 16, 32, 32}},
      {"hysteresis, refilled by a clean step",
       [](O& o) {
         o.init_scale = 64, o.growth_interval = 3, o.hysteresis = 2,
         o.hysteresis_refill = ScalerRefill::clean;
       },
       "!.!!...!",
       {64, 64, 64, 32, 32, 32, 64, 64}},
      // Three growths in windows of 1, then windows of 2; three overflows
      // return to 1.
      {"window list",
       [](O& o) {
         o.init_scale = 1, o.window_list = {1, 2};
       },
       ".....!!!.",
       {2, 4, 8, 8, 16, 8, 4, 2, 4}},
  };
  for (const auto& row : rows) {
    O options;
    row.set(options);
    LossScaler scaler(options);
    const std::vector<double> all = run(scaler, row.steps);
    EXPECT_EQ(std::vector<double>(
                  all.end() - static_cast<std::ptrdiff_t>(row.scales.size()),
                  all.end()),
              row.scales)
        << row.text;
  }
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
  expect_refused([&] { scaler.update(1.0f); },
                 {"3 overflows in a row, max_overflows 3"});
}

TEST(OwnScaler, BadOptionsNameOptionAndValue) {
  using O = LossScalerOptions;
  const struct {
    void (*spoil)(O& options);
    const char* text;
  } rows[] = {
      {[](O& o) { o.growth_factor = 1.0; },
       "growth_factor: got 1.0, expected a finite number above 1"},
      {[](O& o) { o.backoff_factor = 1.0; },
       "backoff_factor: got 1.0, expected a number between 0 and 1"},
      {[](O& o) { o.growth_interval = 0; },
       "growth_interval: got 0.0, expected an integer, at least 1"},
      {[](O& o) { o.init_scale = 0.5, o.min_scale = 1; },
       "init_scale: got 0.5, expected min_scale to max_scale, 1.0 to inf, and "
       "at most 2^127"},
      {[](O& o) { o.max_scale = 0.5, o.min_scale = 1; },
       "max_scale: got 0.5, expected 0 (none) or at least min_scale, 1.0"},
      {[](O& o) { o.hysteresis = -1; },
       "hysteresis: got -1.0, expected an integer, at least 1"},
      {[](O& o) {
         o.window_list = {5, 5};
       },
       "window_list: got [5, 5], expected rising integers, the first at least "
       "1"},
      {[](O& o) { o.policy = static_cast<ScalerPolicy>(7); },
       "policy: got 7, expected a value of its enum, below 3"}};
  for (const auto& row : rows) {
    O options;
    row.spoil(options);
    EXPECT_EQ(error_of([&] { LossScaler scaler(options); }),
              std::string("swamp.LossScaler: ") + row.text);
  }
  O options;
  options.min_scale = std::nan("");
  expect_refused([&] { LossScaler scaler(options); }, {"min_scale"});
}

TEST(OwnScaler, WordsByName) {
  EXPECT_THROW(LossScaler::from_name("swamp.LossScaler",
                                     {{"policy", std::string("stop")}}),
               Error);
  EXPECT_NO_THROW(LossScaler::from_name("swamp.LossScaler",
                                        {{"policy", std::string("warn")}}));
}

// ---- state_dict() and load_state_dict(): the originals' keys, what swamp
// adds, and errors.

std::string saved(const std::string& name, const ScalerOptions& options = {}) {
  return LossScaler::from_name(name, options).state_dict();
}

TEST(LossScalerState, HasTheKeysOfTheOriginal) {
  EXPECT_EQ(
      saved("megatron.ConstantGradScaler"),
      R"({"swamp":{"version":1,"scaler":"megatron.ConstantGradScaler"}})");
  EXPECT_EQ(
      saved("megatron.DynamicGradScaler"),
      R"({"scale":4294967296.0,"growth_tracker":0,"hysteresis_tracker":2,)"
      R"("swamp":{"version":1,"scaler":"megatron.DynamicGradScaler"}})");
  EXPECT_EQ(saved("torch.amp.GradScaler"),
            R"({"scale":65536.0,"growth_factor":2.0,"backoff_factor":0.5,)"
            R"("growth_interval":2000,"_growth_tracker":0,)"
            R"("swamp":{"version":1,"scaler":"torch.amp.GradScaler"}})");
  EXPECT_EQ(saved("apex.amp.LossScaler"),
            R"({"loss_scaler0":{"loss_scale":65536.0,"unskipped":0},)"
            R"("swamp":{"version":1,"scaler":"apex.amp.LossScaler"}})");
}

TEST(LossScalerState, HoldsStateThatTheOriginalDoesNotSave) {
  EXPECT_EQ(saved("colossalai.DynamicGradScaler"),
            R"({"scale":65536.0,"growth_factor":2.0,"backoff_factor":0.5,)"
            R"("hysteresis":2,"swamp":{"version":1,)"
            R"("scaler":"colossalai.DynamicGradScaler","growth_step":0,)"
            R"("hysteresis_step":0}})");
  EXPECT_EQ(saved("metaseq.DynamicLossScaler"),
            R"({"loss_scale":32768.0,"swamp":{"version":1,)"
            R"("scaler":"metaseq.DynamicLossScaler","iter":0,)"
            R"("last_overflow_iter":-1,"last_rescale_iter":-1,)"
            R"("overflows_since_rescale":0,"scale_window":2000.0}})");
}

TEST(LossScalerState, InfinityIsAWord) {
  LossScaler scaler = LossScaler::from_name(
      "megatron.DynamicGradScaler",
      {{"initial_scale", 0x1p127}, {"growth_interval", 1.0}});
  scaler.update(0.0f);
  EXPECT_EQ(scaler.state_dict().rfind(R"({"scale":"inf",)", 0), 0u);
  LossScaler other = LossScaler::from_name("megatron.DynamicGradScaler");
  other.load_state_dict(scaler.state_dict());
  EXPECT_EQ(other.scale(), scaler.scale());
}

// NeMo reads a misspelt key and so always sets 1; swamp's checkpoint restores
// the tracker.
TEST(LossScalerState, NemoForgetsItsHysteresis) {
  const ScalerOptions options = {{"hysteresis", std::int64_t{5}}};
  LossScaler scaler = LossScaler::from_name("nemo.GradScaler", options);
  scaler.update(1.0f);
  const std::string own = scaler.state_dict();
  LossScaler other = LossScaler::from_name("nemo.GradScaler", options);
  other.load_state_dict(own);
  EXPECT_EQ(other.trackers(), (std::vector<double>{0, 4}));
  other.load_state_dict(own.substr(0, own.find(R"(,"swamp")")) + "}");
  EXPECT_EQ(other.trackers(), (std::vector<double>{0, 1}));
}

// Options, states and messages are the same with any decimal point of the
// program; the second one has two bytes.
TEST(LossScalerState, TheProgramsLocaleDoesNotMatter) {
  const std::string expected =
      R"({"scale":1.5,"growth_tracker":0,"hysteresis_tracker":2,)"
      R"("swamp":{"version":1,"scaler":"megatron.DynamicGradScaler"}})";
  for (const char* point : {".", ",", "\u066b"}) {
    SCOPED_TRACE(point);
    const DecimalPointScope scope(point);
    if (!scope.is_set()) GTEST_SKIP() << "not glibc's locales";
    for (const char* number : {"1.5", R"("0x1.8p+0")"}) {
      LossScaler scaler = LossScaler::from_name(
          "megatron.DynamicGradScaler",
          scaler_options_from_json(std::string(R"({"min_scale":1.25,)") +
                                   R"("initial_scale":)" + number + "}"));
      EXPECT_EQ(scaler.scale(), 1.5);
      EXPECT_EQ(scaler.state_dict(), expected);
      LossScaler loaded = LossScaler::from_name("megatron.DynamicGradScaler");
      loaded.load_state_dict(
          std::string(R"({"growth_tracker":0,"hysteresis_tracker":2,)") +
          R"("scale":)" + number + "}");
      EXPECT_EQ(loaded.state_dict(), expected);
    }
    expect_refused(
        [] {
          LossScaler::from_name("torch.amp.GradScaler",
                                {{"growth_factor", 0.0625}});
        },
        {"0.0625"});
  }
}

TEST(LossScalerState, RefusedStatesChangeNothing) {
  struct Case {
    const char* scaler;
    const char* json;
    const char* words;
  };
  const Case cases[] = {
      {"torch.amp.GradScaler", "{}", "The source state dict is empty"},
      {"torch.amp.GradScaler", "[]", "got array, expected a JSON object"},
      {"torch.amp.GradScaler", "{", "got text that is not JSON, expected"},
      {"torch.amp.GradScaler", R"({"scale":1})",
       "growth_factor: got nothing, expected"},
      {"megatron.DynamicGradScaler",
       R"({"scale":"x","growth_tracker":1,"hysteresis_tracker":1})",
       "expected a number"},
      {"megatron.DynamicGradScaler",
       R"({"scale":1,"growth_tracker":1.5,"hysteresis_tracker":1})",
       "growth_tracker: got 1.5, expected an integer"},
      {"megatron.DynamicGradScaler",
       R"({"scale":1,"growth_tracker":"inf","hysteresis_tracker":1})",
       "growth_tracker: got inf, expected an integer"},
      {"fairseq.DynamicLossScaler", R"({"loss_scale":1,"swamp":{"version":2}})",
       "version 1"},
      {"fairseq.DynamicLossScaler",
       R"({"loss_scale":1,"swamp":{"version":1,"scaler":"x"}})",
       "expected 'fairseq.DynamicLossScaler'"},
      {"fairseq.DynamicLossScaler",
       R"({"loss_scale":1,"swamp":{"version":1,)"
       R"("scaler":"fairseq.DynamicLossScaler"}})",
       "swamp.iter: got nothing, expected"},
      {"mindformers.AdaptiveLossScaleUpdateCell",
       R"({"scale_sense":1,"current_iterator_step":1,)"
       R"("last_overflow_iterator_step":0,"scale_window":20,"list_index":8,)"
       R"("window_up_count":0,"window_down_count":0})",
       "list_index: got 8"},
      {"swamp.LossScaler",
       R"({"scale":1,"growth_tracker":0,"hysteresis_tracker":1,)"
       R"("overflows_in_a_row":0,"list_index":-1,"window_up_count":0,)"
       R"("window_down_count":0})",
       "list_index: got -1"},
  };
  for (const Case& bad : cases) {
    LossScaler scaler = LossScaler::from_name(bad.scaler);
    const std::string before = scaler.state_dict();
    EXPECT_TRUE(has_words(error_of([&] { scaler.load_state_dict(bad.json); }),
                          {bad.words}))
        << bad.scaler << " with " << bad.json;
    EXPECT_EQ(scaler.state_dict(), before);
  }
}

}  // namespace
}  // namespace swamp::test
