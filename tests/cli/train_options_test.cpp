// Options of `swamp train`: what they select. errors.txt has those that
// contradict each other.
#include <gtest/gtest.h>

#include <map>

#include "tests/cli/training.h"

namespace swamp::test {
namespace {

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
