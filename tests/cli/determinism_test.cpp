// The same seed gives the same weights, bit for bit, on every machine.
#include <gtest/gtest.h>

#include "tests/cli/training.h"

namespace swamp::test {
namespace {

Training train(const Environment& environment, const char* seed = "1") {
  // Overflows, a grown scale and ordinary steps.
  return run_training(
      {"--steps", "14", "--batch", "4", "--seed", seed, "--initial-loss-scale",
       "67108864", "--loss-scale-window", "3"},
      environment);
}

TEST(Determinism, MachineBackendTransferAndIsaChangeNothing) {
  const Training reference = train({});
  EXPECT_GT(reference.skipped, 0);
  EXPECT_LT(reference.skipped, 14);
  const std::vector<Environment> environments = {
      {},
      {{"SWAMP_BACKEND", "serial"}},
      {{"SWAMP_BACKEND", "threads"}},
      {{"SWAMP_TRANSFER", "copy"}},
      {{"SWAMP_TRANSFER", "check"}},
      {{"SWAMP_ISA", "scalar"}},
      {{"SWAMP_MACHINE", "sw26010pro"}},
      {{"SWAMP_MACHINE", "sw26010"}, {"SWAMP_TRANSFER", "copy"}},
      {{"SWAMP_MACHINE", "sw26010pro"},
       {"SWAMP_BACKEND", "threads"},
       {"SWAMP_TRANSFER", "check"}},
      {{"SWAMP_CORE_GROUPS", "3"},
       {"SWAMP_SLAVES_PER_GROUP", "7"},
       {"SWAMP_LDM_BYTES", "4096"},
       {"SWAMP_TRANSFER", "copy"}}};
  for (const Environment& environment : environments) {
    std::string named = "with";
    for (const auto& [name, value] : environment) {
      named += " " + name + "=" + value;
    }
    const Training training = train(environment);
    EXPECT_EQ(training.weights, reference.weights) << named;
    EXPECT_EQ(training.steps, reference.steps) << named;
  }
}

TEST(Determinism, TheSeedChangesTheWeights) {
  EXPECT_NE(train({}, "1").weights, train({}, "2").weights);
}

TEST(Determinism, TheDtypeChangesTheWeights) {
  const auto weights = [](const char* dtype) {
    return run_training({"--steps", "2", "--batch", "4", "--loss-scale", "1",
                         "--dtype", dtype})
        .weights;
  };
  EXPECT_NE(weights("float16"), weights("bfloat16"));
  EXPECT_NE(weights("float16"), weights("float32"));
}

}  // namespace
}  // namespace swamp::test
