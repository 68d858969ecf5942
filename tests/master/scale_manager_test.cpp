// Scale managers: ranks, states, and the cases in which recipes differ but
// which the golden scales lack. These are replayed by the program's tests.
#include "swamp/scale_manager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/errors.h"
#include "support/thread_communicator.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

using Options = ScalerOptions;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// same() compares bits; a nan is a nan.
void same(float actual, std::uint32_t expected, const char* what) {
  if (std::isnan(float_from_bits(expected))) {
    EXPECT_TRUE(std::isnan(actual)) << what;
  } else {
    EXPECT_EQ(float_to_bits(actual), expected) << what;
  }
}

// ---- The cases in which recipes differ.

// scales() returns the scale after each amax, of a recipe with one tensor of
// the forward pass; -1 is a step in which it was not seen.
std::vector<float> scales(const std::string& recipe, const Options& options,
                          const std::vector<float>& amax) {
  ScaleManager manager = ScaleManager::from_name(recipe, 1, 0, options);
  std::vector<float> scales;
  for (const float each : amax) {
    manager.observe(0, each);
    const float in_time = manager.scale(0);
    manager.update();
    scales.push_back(manager.scale(0));
    // Other recipes scale in time; msamp, until its window is full.
    if (amax.size() == 1 && recipe.find("elayed") == std::string::npos) {
      same(in_time, float_to_bits(scales.back()), "in time");
    }
  }
  return scales;
}

void expect_same(const std::vector<float>& actual,
                 const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    same(actual[i], float_to_bits(expected[i]), "of a step");
  }
}

TEST(ScaleManager, RecipesDiffer) {
  const auto row = [](const char* what, const char* recipe,
                      const Options& options, const std::vector<float>& amax,
                      const std::vector<float>& expected) {
    SCOPED_TRACE(std::string(recipe) + ": " + what);
    expect_same(scales(recipe, options, amax), expected);
  };
  const char* te = "te.DelayedScaling";
  const Options two = {{"amax_history_len", std::int64_t{2}}};
  Options recent = two, unfused = two;
  recent["amax_compute_algo"] = std::string("most_recent");
  unfused["fused"] = false;
  row("nan is skipped in a window", te, two, {1, kNan, 2}, {448, 448, 224});
  row("nan freezes the most recent", te, recent, {1, kNan, 2}, {448, 448, 224});
  row("nan freezes an unfused window", te, unfused, {1, kNan, 2, 2, 4},
      {448, 448, 448, 224, 112});
  row("inf is 0 in a window", "msamp", {{"window_size", std::int64_t{2}}},
      {1, 1, 1, kInf, 2}, {256, 256, 256, 256, 128});
  row("rows have powers of two", "torchao.float8.rowwise", {}, {3}, {128});
  row("in all recipes of rows", "torchao.float8.rowwise_with_gw_hp", {}, {3},
      {128});
  row("Megatron has no window", "megatron.delayed", {}, {4, 1}, {112, 448});
  row("a margin", te, {{"margin", std::int64_t{2}}}, {1}, {112});
  row("Ascend's smaller range", "torch_npu.hifloat8", {}, {30}, {0.5f});
}

// MindSpeed rolls a full window along the wrong axis: its first entries stay.
TEST(ScaleManager, MindSpeedWindow) {
  ScaleManager manager =
      ScaleManager::from_name("mindspeed.delayed", 1, 1,
                              {{"fp8_amax_history_len", std::int64_t{3}},
                               {"fp8_amax_compute_algo", std::string("max")}});
  const auto step = [&](float amax) {
    manager.observe(0, amax);
    manager.update();
    return manager.scale_inv(0) * 448;
  };
  EXPECT_EQ(manager.scale(0), 1);
  manager.observe(0, 14);  // the first tensor is scaled by its own amax
  EXPECT_EQ(manager.scale_inv(0), 14 / 448.0f);
  manager.update();
  manager.observe(0, 7);  // the next are not
  EXPECT_EQ(manager.scale_inv(0), 14 / 448.0f);
  manager.update();
  EXPECT_EQ(step(28), 28);
  EXPECT_EQ(step(7), 14);
  EXPECT_EQ(step(3.5f), 14);
  EXPECT_EQ(manager.history(0), (std::vector<float>{14, 7, 3.5f}));
  manager.update();  // nothing was quantized
  EXPECT_EQ(manager.history(0), (std::vector<float>{14, 7, 3.5f}));
  EXPECT_EQ(manager.history(1), (std::vector<float>{0, 0, 0}));
}

TEST(ScaleManager, MindSpeedInterval) {
  expect_same(scales("mindspeed.delayed", {{"fp8_interval", std::int64_t{2}}},
                     {448, 7, 7, 14, 14}),
              {1, 1, 64, 64, 32});
}

// MS-AMP scales in time until its window is full, and again after an inf.
TEST(ScaleManager, MsampWindow) {
  ScaleManager manager = ScaleManager::from_name(
      "msamp", 1, 0, {{"window_size", std::int64_t{2}}});
  const struct {
    float amax, quantized, updated;
  } steps[] = {{1, 256, 256}, {kInf, 1 / 256.0f, 256},
               {4, 64, 64},   {0.5f, 512, 64},
               {8, 64, 32},   {-1, 32, 32},
               {-1, 32, 32},  {1, 32, 256}};
  for (const auto& step : steps) {
    manager.observe(0, step.amax);
    EXPECT_EQ(manager.scale(0), step.quantized);
    manager.update();
    EXPECT_EQ(manager.scale(0), step.updated);
  }
}

TEST(ScaleManager, ObservesTheLargest) {
  ScaleManager manager = ScaleManager::from_name("te.DelayedScaling", 2, 1);
  const float first[] = {1, -1, 0}, second[] = {-0.0f, -1, 4};
  manager.observe_all(first, 3);
  manager.observe_all(second, 3);
  EXPECT_EQ(manager.amax(), (std::vector<float>{1, -1, 4}));
  manager.observe(0, -kNan);
  manager.observe(0, kInf);
  EXPECT_TRUE(std::isnan(manager.amax()[0]));
  manager.update();
  EXPECT_EQ(manager.scale(2), 57344 / 4.0f);  // HYBRID: gradients are e5m2
  EXPECT_EQ(manager.amax(), (std::vector<float>{-1, -1, -1}));
}

// ---- Ranks.

TEST(ScaleManager, RanksHaveTheSameState) {
  for (const char* recipe :
       {"te.DelayedScaling", "te.Float8CurrentScaling", "msamp"}) {
    SCOPED_TRACE(recipe);
    const std::vector<std::vector<float>> steps = {
        {1, 0, -1, -1}, {2, -1, 0, -1}, {0.5f, 3, kInf, -1}};
    std::vector<std::string> states(3);
    std::vector<std::vector<float>> all(3);
    run_ranks(3, [&](Communicator& ranks) {
      ScaleManager manager = ScaleManager::from_name(recipe, 3, 1);
      for (std::size_t step = 0; step < 3; ++step) {
        const auto rank = static_cast<std::size_t>(ranks.rank());
        manager.observe_all(steps[(step + rank) % 3].data(), 4);
        manager.reduce(ranks);
        all[rank] = manager.amax();
        manager.update();
        states[rank] += manager.state_dict();
        for (std::size_t i = 0; i < 4; ++i) {
          states[rank] += " " + std::to_string(manager.scale(i));
        }
      }
    });
    EXPECT_EQ(all[0], (std::vector<float>{2, 3, kInf, -1}));
    EXPECT_EQ(states[1], states[0]);
    EXPECT_EQ(states[2], states[0]);
  }
}

TEST(ScaleManager, ReductionOfNan) {
  run_ranks(2, [](Communicator& ranks) {
    ScaleManager te = ScaleManager::from_name("te.Float8CurrentScaling", 1);
    ScaleManager msamp = ScaleManager::from_name("msamp", 1);
    for (ScaleManager* manager : {&te, &msamp}) {
      manager->observe(0, ranks.rank() == 1 ? kNan : 1.0f);
      manager->reduce(ranks);
    }
    EXPECT_TRUE(std::isnan(te.amax()[0]));
    EXPECT_EQ(msamp.amax()[0], kInf);
    ScaleManager local = ScaleManager::from_name("te.DelayedScaling", 1, 0,
                                                 {{"reduce_amax", false}});
    local.observe(0, static_cast<float>(ranks.rank()));
    local.reduce(ranks);
    EXPECT_EQ(local.amax()[0], static_cast<float>(ranks.rank()));
  });
}

class Broken final : public Communicator {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 2; }

 private:
  void exchange_pieces(const ConstBytes*, const MutableBytes*) override {
    throw Error(SWAMP_INTERNAL, "broken");
  }
};

TEST(ScaleManager, BrokenCommunicatorChangesNothing) {
  ScaleManager manager = ScaleManager::from_name("msamp", 2);
  manager.observe(0, kNan);
  Broken broken;
  EXPECT_THROW(manager.reduce(broken), Error);
  EXPECT_TRUE(std::isnan(manager.amax()[0]));
  EXPECT_EQ(manager.amax()[1], -1);
}

// ---- States.

std::string state_of(const char* recipe, const Options& options) {
  ScaleManager manager = ScaleManager::from_name(recipe, 2, 1, options);
  const float first[] = {1, 2, 4}, second[] = {0.5f, kInf, 8};
  manager.observe_all(first, 3);
  manager.update();
  manager.observe_all(second, 3);
  return manager.state_dict();
}

TEST(ScaleManagerState, HasTheKeysOfTheOriginal) {
  EXPECT_EQ(
      state_of("te.DelayedScaling", {{"amax_history_len", std::int64_t{2}}}),
      R"({"recipe":"DelayedScaling","scale_fwd":[448.0,224.0],)"
      R"("amax_history_fwd":[[0.5,"inf"],[1.0,2.0]],)"
      R"("scale_bwd":[14336.0],"amax_history_bwd":[[8.0],[4.0]],)"
      R"("swamp":{"version":1,"scaler":"te.DelayedScaling"}})");
  EXPECT_EQ(state_of("msamp", {{"window_size", std::int64_t{2}}}),
            R"({"input":{"scales":[256.0,128.0],)"
            R"("scales_inv":[0.00390625,0.0078125],)"
            R"("amaxs":[[0.5,1.0],["inf",2.0]],"amax_counters":[1,1]},)"
            R"("ograd":{"scales":[8192.0],"scales_inv":[0.0001220703125],)"
            R"("amaxs":[[8.0,4.0]],"amax_counters":[1]},)"
            R"("swamp":{"version":1,"scaler":"msamp"}})");
  EXPECT_EQ(
      state_of("mindspeed.delayed", {{"fp8_amax_history_len", std::int64_t{2}},
                                     {"fp8_format", std::string("e4m3")}}),
      R"({"inputs":{"scale":[0.0022321429569274187,)"
      R"(0.004464285913854837],"amax_history":[[1.0,0.0],[2.0,0.0]],)"
      R"("amax_history_current_len":[1,1],"current_interval":[1,1]},)"
      R"("grads":{"scale":[0.008928571827709675],)"
      R"("amax_history":[[4.0,0.0]],"amax_history_current_len":[1],)"
      R"("current_interval":[1]},)"
      R"("swamp":{"version":1,"scaler":"mindspeed.delayed"}})");
  EXPECT_EQ(state_of("torchao.mx", {}),
            R"({"swamp":{"version":1,"scaler":"torchao.mx"}})");
}

TEST(ScaleManagerState, Resumes) {
  for (const char* recipe : {"te.DelayedScaling", "megatron.delayed", "msamp",
                             "mindspeed.delayed"}) {
    SCOPED_TRACE(recipe);
    const char* length = recipe[0] == 't'   ? "amax_history_len"
                         : recipe[1] == 's' ? "window_size"
                                            : "fp8_amax_history_len";
    const Options options = {{length, std::int64_t{3}}};
    ScaleManager straight = ScaleManager::from_name(recipe, 1, 1, options);
    for (int step = 0; step < 12; ++step) {
      ScaleManager resumed = ScaleManager::from_name(recipe, 1, 1, options);
      resumed.load_state_dict(straight.state_dict());
      for (ScaleManager* manager : {&straight, &resumed}) {
        for (std::size_t i = 0; i < 2; ++i) {
          manager->observe(
              i, step == 4 ? kInf
                           : 1.0f / static_cast<float>(1 + (step * 7 + 3) % 5));
        }
        manager->update();
      }
      EXPECT_EQ(resumed.state_dict(), straight.state_dict()) << step;
    }
  }
}

// Transformer Engine 1 saved no recipe.
TEST(ScaleManagerState, LoadsTheOriginals) {
  ScaleManager manager = ScaleManager::from_name(
      "te.DelayedScaling", 1, 1, {{"amax_history_len", std::int64_t{2}}});
  manager.load_state_dict(
      R"({"scale_fwd":["0x1.8p+3"],"amax_history_fwd":[[3],[2]],)"
      R"("scale_bwd":[1],"amax_history_bwd":[[0],[0]],"scale_inv_fwd":[9]})");
  EXPECT_EQ(manager.scale(0), 12);
  EXPECT_EQ(manager.scale_inv(0), 1 / 12.0f);
  EXPECT_EQ(manager.history(0), (std::vector<float>{3, 2}));
  EXPECT_EQ(manager.amax(), (std::vector<float>{3, -1}));
}

TEST(ScaleManagerState, RefusedStatesChangeNothing) {
  const std::string good = R"({"recipe":"DelayedScaling","scale_fwd":[1],)"
                           R"("amax_history_fwd":[[3],[2]],"scale_bwd":[1],)"
                           R"("amax_history_bwd":[[0],[0]]})";
  const struct {
    std::string part, by, words;
  } rows[] = {
      {good, "[]", "text: got array, expected a JSON object"},
      {"\"DelayedScaling\"", "\"MXFP8BlockScaling\"",
       "recipe: got 'MXFP8BlockScaling', expected 'DelayedScaling'"},
      {"\"scale_fwd\"", "\"scale\"", "scale_fwd: got nothing, expected a list"},
      {"[1]", "[1,1]", "scale_fwd: got a list of 2, expected a list of 1"},
      {"[1]", "1", "scale_fwd: got 1, expected a list of 1"},
      {"[1]", "[null]", "scale_fwd[0]: got null, expected a number"},
      {"[1]", "[1e300]", "scale_fwd[0]: got 1e+300, expected a float32"},
      {"[1]", "[0]",
       "scale_fwd[0]: got 0.0, expected a finite number larger than 0"},
      {"[1]", "[1e-45]", "scale_fwd[0]: got 1.401298464324817e-45, expected"},
      {"[1]", "[-0.0]", "scale_fwd[0]: got -0.0, expected"},
      {"[2]", "[-0.0]", "amax_history_fwd[0][1]: got -0.0, expected"},
      {"[1]", "[-1]",
       "scale_fwd[0]: got -1.0, expected a finite number larger than 0"},
      {"[1]", "[\"nan\"]",
       "scale_fwd[0]: got nan, expected a finite number larger than 0"},
      {"[1]", "[\"inf\"]",
       "scale_fwd[0]: got inf, expected a finite number larger than 0"},
      {"[[3],[2]]", "[[3]]",
       "amax_history_fwd: got a list of 1, expected a list of 2"},
      {"[[3],[2]]", "[[3],[2,2]]",
       "amax_history_fwd: got a list of 2, expected a list of 1"},
      {"[2]", "[-2]", "amax_history_fwd[0][1]: got -2.0, expected at least 0"},
      {"{\"recipe\"", "{\"swamp\":{\"version\":2},\"recipe\"",
       "swamp: got version 2, expected an object of version 1"},
      {"{\"recipe\"",
       "{\"swamp\":{\"version\":1,\"scaler\":\"msamp\"},\"recipe\"",
       "swamp.scaler: got 'msamp', expected 'te.DelayedScaling'"},
  };
  ScaleManager manager = ScaleManager::from_name(
      "te.DelayedScaling", 1, 1, {{"amax_history_len", std::int64_t{2}}});
  manager.load_state_dict(good);
  manager.observe(1, 5);
  const std::string before = manager.state_dict();
  for (const auto& row : rows) {
    std::string text = good;
    text.replace(text.find(row.part), row.part.size(), row.by);
    EXPECT_EQ(error_of([&] {
                manager.load_state_dict(text);
              }).rfind("te.DelayedScaling: state_dict: " + row.words, 0),
              0u)
        << error_of([&] { manager.load_state_dict(text); });
    EXPECT_EQ(manager.state_dict(), before);
  }
  ScaleManager mindspeed = ScaleManager::from_name("mindspeed.delayed", 1);
  expect_refused(
      [&] {
        mindspeed.load_state_dict(
            R"({"inputs":{"scale":[1],"amax_history":[[1]],)"
            R"("amax_history_current_len":[2],"current_interval":[1]}})");
      },
      {"inputs/amax_history_current_len[0]: got 2.0, expected at least 0, at "
       "most 1"});
  // Their rules yield 0, inf and, MindSpeed's, nan.
  const auto text_with = [](const char* scale) {
    return R"({"inputs":{"scale":[)" + std::string(scale) +
           R"(],"amax_history":[[1]],"amax_history_current_len":[1],)"
           R"("current_interval":[1]},"grads":{"scale":[],"amax_history":[],)"
           R"("amax_history_current_len":[],"current_interval":[]}})";
  };
  for (const char* scale : {"0", "\"inf\"", "\"nan\""}) {
    EXPECT_NO_THROW(mindspeed.load_state_dict(text_with(scale)));
  }
  expect_refused([&] { mindspeed.load_state_dict(text_with("-1")); },
                 {"inputs/scale[0]: got -1.0, expected at least 0, or nan"});
}

// ---- Errors.

TEST(ScaleManager, EveryNameMakesAManager) {
  const std::vector<std::string> names = ScaleManager::names();
  EXPECT_EQ(names.size(), 19u);
  for (const std::string& name : names) {
    const ScaleManager manager = ScaleManager::from_name(name, 2, 1);
    EXPECT_EQ(manager.name(), name);
    EXPECT_EQ(manager.count(), 3u);
    EXPECT_EQ(manager.scale(2), 1);
  }
  EXPECT_EQ(ScaleManager::from_name("torchao.mx", 0).count(), 0u);
}

TEST(ScaleManager, BadArgumentsNameArgumentAndValue) {
  const auto make = [](const char* name, const Options& options) {
    return error_of([&] { ScaleManager::from_name(name, 1, 1, options); });
  };
  const std::string te = "te.DelayedScaling";
  const struct {
    std::string error, expected;
  } rows[] = {
      {make("te.Delayed", {}),
       "recipe: got 'te.Delayed', expected one of megatron.delayed, "},
      {make("te.DelayedScaling", {{"margins", 1.0}}),
       te + ": got the option 'margins', expected one of margin, fp8_format"},
      {make("modelopt.fp8", {{"x", 1.0}}),
       "modelopt.fp8: got the option 'x', expected none"},
      {make("te.DelayedScaling", {{"fp8_format", std::string("E5M2")}}),
       te + ": fp8_format: got 'E5M2', expected one of 'E4M3', 'HYBRID'"},
      {make("te.DelayedScaling", {{"fp8_format", 1.0}}),
       te + ": fp8_format: got 1.0, expected one of 'E4M3', 'HYBRID'"},
      {make("te.DelayedScaling", {{"margin", 0.5}}),
       te + ": margin: got 0.5, expected an integer, at least -126, at most "
            "126"},
      {make("te.DelayedScaling", {{"amax_history_len", std::int64_t{0}}}),
       te + ": amax_history_len: got 0, expected an integer, at least 1"},
      {make("te.DelayedScaling", {{"fused", std::int64_t{1}}}),
       te + ": fused: got 1, expected true or false"},
      {make("te.Float8CurrentScaling", {{"amax_epsilon", kNan}}),
       "te.Float8CurrentScaling: amax_epsilon: got nan, expected a number, at "
       "least 0"},
      {error_of([] { ScaleManager::from_name("msamp", 1u << 25); }),
       "msamp: forward: got 33554432, expected at most 16777216"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(row.error.rfind(row.expected, 0), 0u) << row.error;
  }

  ScaleManager manager = ScaleManager::from_name("te.DelayedScaling", 1, 1);
  const float bad[] = {2, -3}, good[] = {1, 1};
  EXPECT_EQ(error_of([&] { manager.observe_all(good, 1); }),
            te + ": count: got 1, expected 2, that of the tensors");
  EXPECT_EQ(error_of([&] { manager.observe_all(nullptr, 2); }),
            te + ": amax: got null, expected an address");
  EXPECT_EQ(error_of([&] { manager.observe_all(bad, 2); }),
            te + ": amax[1]: got -3, expected at least 0, nan, or -1");
  EXPECT_EQ(error_of([&] { manager.observe(std::size_t{2}, 1); }),
            te + ": index: got 2, expected less than 2");
  EXPECT_EQ(error_of([&] { manager.scale(7); }),
            te + ": index: got 7, expected less than 2");
  EXPECT_EQ(
      error_of([&] { manager.block_scale(0, 1); }, SWAMP_UNSUPPORTED),
      "block_scale: got " + te + ", expected a recipe that scales blocks");
  EXPECT_EQ(manager.amax(), (std::vector<float>{-1, -1}));
  const ScaleManager mx = ScaleManager::from_name("torchao.mx", 1);
  EXPECT_EQ(error_of([&] { mx.block_scale(0, -1); }),
            "torchao.mx: amax: got -1, expected at least 0, or nan");
}

}  // namespace
}  // namespace swamp::test
