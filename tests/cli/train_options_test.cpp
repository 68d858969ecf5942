// Options of `swamp train`: what they select, and which contradict each other.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/cli/training.h"

namespace swamp::test {
namespace {

void expect_refused(const Words& arguments,
                    const std::vector<std::string>& parts) {
  expect_error(run_program(Words("train") + arguments), parts, Hint::help);
}

TEST(TrainOptions, DtypesThatContradictEachOther) {
  expect_refused("--fp16 --bf16", {"--fp16", "--bf16"});
  expect_refused("--fp16 --dtype float32", {"--dtype", "float32", "--fp16"});
  expect_refused("--bf16 --dtype float16", {"--dtype", "float16", "--bf16"});
}

// The texts are Megatron's.
TEST(TrainOptions, FlagsOfOtherDtypes) {
  for (const auto& [flag, dtype, text] :
       {std::tuple("--fp32-residual-connection", "float32",
                   "residual connection in fp32 only supported when using "
                   "fp16 or bf16."),
        std::tuple("--fp16-lm-cross-entropy", "float32",
                   "lm cross entropy in fp16 only support in fp16 mode."),
        std::tuple("--fp16-lm-cross-entropy", "bfloat16",
                   "lm cross entropy in fp16 only support in fp16 mode.")}) {
    expect_refused({flag, "--dtype", dtype},
                   {std::string(flag) + ": got --dtype " + dtype, text});
  }
}

TEST(TrainOptions, ScalesThatContradictEachOther) {
  expect_refused("--loss-scale 2 --initial-loss-scale 4",
                 {"--loss-scale 2", "--initial-loss-scale"});
  expect_refused("--loss-scale 2 --loss-scale-window 4",
                 {"--loss-scale", "--loss-scale-window"});
  expect_refused("--loss-scale 2 --hysteresis 4",
                 {"--loss-scale", "--hysteresis"});
  expect_refused("--dtype bfloat16 --initial-loss-scale 4",
                 {"--initial-loss-scale", "bfloat16", "float16"});
  expect_refused("--bf16 --min-loss-scale 1", {"--min-loss-scale", "bfloat16"});
  expect_refused("--min-loss-scale 8 --initial-loss-scale 4",
                 {"--min-loss-scale", "8", "at most 4"});
  expect_refused("--loss-scale 1e-39", {"--loss-scale", "1e-39"});
}

TEST(TrainOptions, ScalersAndTheirOptions) {
  expect_refused("--scaler torch",
                 {"--scaler", "'torch'", "torch.amp.GradScaler",
                  "megatron.DynamicGradScaler"});
  expect_refused("--scaler torch.amp.GradScaler --loss-scale 2",
                 {"--loss-scale", "--scaler torch.amp.GradScaler"});
  expect_refused("--scaler torch.amp.GradScaler --hysteresis 2",
                 {"--hysteresis", "--scaler-option"});
  expect_refused("--scaler-option init_scale=2",
                 {"--scaler-option", "--scaler"});
  const auto torch = [](const std::string& option) {
    return std::vector<std::string>{"--scaler", "torch.amp.GradScaler",
                                    "--scaler-option", option};
  };
  expect_refused(torch("init_scale"), {"'init_scale'", "KEY=VALUE"});
  expect_refused(torch("=2"), {"'=2'", "KEY=VALUE"});
  expect_refused(torch("init_scale=1,\"a\":2"), {"KEY=VALUE"});
  expect_refused(torch("init_scale=two words"), {"KEY=VALUE"});
  expect_refused(torch("init_scale="), {"KEY=VALUE"});
  expect_refused(torch("init_scale=word"), {"init_scale", "'word'"});
  expect_refused(torch("init_scal=2"), {"init_scal", "init_scale"});
  expect_refused(torch("growth_factor=0.5"), {"growth factor must be > 1.0"});
  expect_refused(
      "--scaler torch.amp.GradScaler --scaler-option init_scale=2 "
      "--scaler-option init_scale=4",
      {"init_scale", "twice"});
}

TEST(TrainOptions, OptimizersAndFiles) {
  expect_refused("--sgd-momentum 0.5", {"--sgd-momentum", "adamw", "sgd"});
  expect_refused("--optimizer sgd --adam-eps 1", {"--adam-eps", "sgd"});
  for (const char* flag :
       {"--attention-softmax-in-fp32", "--apply-query-key-layer-scaling"}) {
    expect_refused({"--use-flash-attn", flag}, {flag, "--use-flash-attn, too"});
  }
  expect_refused("--resume", {"--resume", "--checkpoint"});
  expect_refused("--save-interval 3", {"--save-interval", "--checkpoint"});
  expect_refused("--overwrite", {"--overwrite", "--checkpoint"});
  expect_refused("--checkpoint /nonexistent/x --resume --overwrite",
                 {"--overwrite", "--resume", "one of them"});
  for (const char* name : {"/nonexistent/x.jpg", "/nonexistent/x.svg.gz",
                           "/nonexistent/x.pdf", "/nonexistent.png/x.PN"}) {
    expect_refused({"--plot", name}, {"--plot", name, ".png or .svg"});
  }
}

TEST(TrainOptions, RecipesThatContradictEachOther) {
  expect_refused("--fp8-format e5m2",
                 {"--fp8-format: got 'e5m2', expected one of e4m3, hybrid"});
  expect_refused("--fp8-format e4m3 --fp8-recipe custom",
                 {"--fp8-recipe: got 'custom', expected one of delayed, "
                  "tensorwise, mxfp8, blockwise"});
  expect_refused("--fp4-format e3m0",
                 {"--fp4-format: got 'e3m0', expected e2m1"});
  expect_refused("--fp4-format e2m1 --fp4-recipe mxfp4",
                 {"--fp4-recipe: got 'mxfp4', expected nvfp4"});
  expect_refused("--fp8-format e4m3 --fp8-amax-compute-algo mean",
                 {"--fp8-amax-compute-algo: got 'mean', expected one of "
                  "most_recent, max"});
  expect_refused("--fp8-format e4m3 --fp8-amax-history-len 0",
                 {"--fp8-amax-history-len: got '0', expected an integer"});
  expect_refused("--fp8-format e4m3 --fp8-margin 127",
                 {"--fp8-margin: got '127', expected an integer, 0 to 126"});
  expect_refused("--fp8-recipe mxfp8", {"--fp8-recipe: got no --fp8-format"});
  expect_refused("--fp8-margin 1", {"--fp8-margin: got no --fp8-format"});
  expect_refused("--fp4-recipe nvfp4", {"--fp4-recipe: got no --fp4-format"});
  expect_refused("--fp4-format e2m1 --fp8-margin 1",
                 {"--fp8-margin: got no --fp8-format"});
  expect_refused("--fp4-format e2m1 --fp8-format e4m3",
                 {"--fp4-format: got --fp8-format, too, expected one of them"});
  expect_refused("--fp8-format hybrid --fp8-recipe mxfp8 --fp8-margin 1",
                 {"--fp8-margin: got --fp8-recipe mxfp8, expected delayed"});
  expect_refused("--fp4-format e2m1 --batch 8",
                 {"--batch: got 8, expected a multiple of 16"});
}

std::string weights(const Words& arguments) {
  return run_training(arguments + "--steps 4 --batch 4").weights;
}

TEST(TrainOptions, MegatronsFlagsAreThoseOfDtype) {
  EXPECT_EQ(weights("--fp16 --initial-loss-scale 1024"),
            weights("--dtype float16 --initial-loss-scale 1024"));
  EXPECT_EQ(weights("--bf16"), weights("--dtype bfloat16"));
  EXPECT_EQ(weights("--bf16 --dtype bfloat16"), weights("--bf16"));
}

TEST(TrainOptions, FlagsOfTheModelChangeTheBitsOrDoNot) {
  struct Row {
    const char* dtype;
    const char* flag;
    bool same;  // bits as without the flag
  };
  for (const Row& row : {Row{"float16", "--attention-softmax-in-fp32", false},
                         {"bfloat16", "--attention-softmax-in-fp32", false},
                         {"float32", "--attention-softmax-in-fp32", true},
                         // A factor of 2 is exact, and these scores are small.
                         {"bfloat16", "--apply-query-key-layer-scaling", true},
                         {"float32", "--apply-query-key-layer-scaling", true},
                         // The operator widens the logits itself.
                         {"float16", "--fp16-lm-cross-entropy", true},
                         {"float16", "--fp32-residual-connection", false},
                         {"bfloat16", "--fp32-residual-connection", false},
                         {"float16", "--use-flash-attn", false},
                         {"float32", "--use-flash-attn", false}}) {
    SCOPED_TRACE(std::string(row.dtype) + " " + row.flag);
    const Words plain = {"--dtype", row.dtype, "--loss-scale", "1024"};
    EXPECT_EQ(weights(plain) == weights(plain + row.flag), row.same);
  }
}

// Every row has other weights; the last words of the first are the defaults.
TEST(TrainOptions, RecipesAndTheirOptionsChangeTheBits) {
  const Words run = "--bf16 --steps 3 --batch 16";
  const Words defaults =
      "--fp8-recipe delayed --fp8-margin 0 --fp8-amax-history-len 1 "
      "--fp8-amax-compute-algo most_recent";
  std::map<std::string, std::string> rows;
  for (const char* row :
       {"--log-interval 1", "--fp8-format e4m3", "--fp8-format hybrid",
        "--fp8-format hybrid --fp8-margin 1",
        "--fp8-format hybrid --fp8-amax-history-len 2 "
        "--fp8-amax-compute-algo max",
        "--fp8-format e4m3 --fp8-recipe tensorwise",
        "--fp8-format hybrid --fp8-recipe tensorwise",
        "--fp8-format e4m3 --fp8-recipe mxfp8",
        "--fp8-format hybrid --fp8-recipe mxfp8",
        "--fp8-format e4m3 --fp8-recipe blockwise", "--fp4-format e2m1"}) {
    const std::string found = run_training(run + Words(row)).weights;
    EXPECT_EQ(rows.emplace(found, row).first->second, row);
  }
  EXPECT_EQ(rows[run_training(run + "--fp8-format hybrid" + defaults).weights],
            "--fp8-format hybrid");
  EXPECT_EQ(
      rows[run_training(run + "--fp4-format e2m1 --fp4-recipe nvfp4").weights],
      "--fp4-format e2m1");
}

TEST(TrainOptions, ALossScaleOfZeroIsNone) {
  EXPECT_EQ(weights("--loss-scale 0 --initial-loss-scale 1024"),
            weights("--initial-loss-scale 1024"));
}

TEST(TrainOptions, TheFlagsAreTheScalerMegatrons) {
  const Words steps = "--steps 20 --batch 4";
  const Training by_flags =
      run_training(steps +
                   "--initial-loss-scale 67108864 --loss-scale-window 3 "
                   "--min-loss-scale 4194304 --hysteresis 3");
  const Training by_name = run_training(
      steps +
      "--scaler megatron.DynamicGradScaler "
      "--scaler-option initial_scale=67108864 "
      "--scaler-option growth_interval=3.0 "
      "--scaler-option min_scale=4194304.0 --scaler-option hysteresis=3 "
      "--scaler-option growth_factor=2.0 --scaler-option backoff_factor=0.5");
  EXPECT_GT(by_flags.skipped, 3);
  EXPECT_EQ(by_flags.weights, by_name.weights);
  EXPECT_EQ(by_flags.steps, by_name.steps);
  // A hysteresis of 3 forgives the first two; the minimum holds.
  EXPECT_EQ(by_flags.steps[2].at("scale"), 67108864.0);
  EXPECT_EQ(by_flags.steps[3].at("scale"), 33554432.0);
  for (const auto& step : by_flags.steps)
    EXPECT_GE(step.at("scale"), 4194304.0);
}

TEST(TrainOptions, EveryOptimizerLearnsInItsOwnWay) {
  const auto train = [](const Words& arguments) {
    return run_training(arguments +
                        "--steps 60 --batch 16 --initial-loss-scale 1024");
  };
  std::vector<std::string> seen;
  for (const Words& arguments :
       {Words("--optimizer adamw"),
        {"--optimizer", "adam"},
        {"--optimizer", "adamw", "--weight-decay", "0.5"},
        {"--optimizer", "adamw", "--adam-beta1", "0.5"},
        {"--optimizer", "adamw", "--adam-beta2", "0.9"},
        {"--optimizer", "adamw", "--adam-eps", "1e-3"},
        {"--optimizer", "adamw", "--clip-grad", "0.5"},
        {"--optimizer", "sgd", "--lr", "0.1"},
        {"--optimizer", "sgd", "--lr", "0.1", "--sgd-momentum", "0"}}) {
    const Training training = train(arguments);
    EXPECT_LT(training.final_loss, 4.5) << arguments[1];  // uniform guess: 5.55
    for (const std::string& other : seen) EXPECT_NE(training.weights, other);
    seen.push_back(training.weights);
  }
  EXPECT_EQ(train({}).weights, seen[0]);  // the default
}

TEST(TrainOptions, AccumulatedBatchesAreOneStep) {
  const Training training = run_training(
      "--steps 30 --batch 4 --accumulate 4 --initial-loss-scale 1024");
  EXPECT_EQ(training.steps.size(), 30u);
  EXPECT_NE(
      training.weights,
      run_training("--steps 30 --batch 4 --initial-loss-scale 1024").weights);
  // Nearly the bits of one batch of 16, whose examples are the same.
  const Training whole =
      run_training("--steps 30 --batch 16 --initial-loss-scale 1024");
  EXPECT_NEAR(training.steps[0].at("loss").get<double>(),
              whole.steps[0].at("loss").get<double>(), 1e-6);
  EXPECT_NEAR(training.final_loss / whole.final_loss, 1.0, 0.01);
}

}  // namespace
}  // namespace swamp::test
