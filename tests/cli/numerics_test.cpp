// What loss scaling is for: float16 learns as well as float32, and loses no
// gradients that the dtype could have held.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/training.h"

namespace swamp::test {
namespace {

TEST(Numerics, Float16LearnsAsFloat32) {
  const auto loss = [](const char* dtype) {
    return run_training({"--steps", "300", "--batch", "32", "--dtype", dtype})
        .final_loss;
  };
  const double float32 = loss("float32");
  EXPECT_LT(float32, 1.5);  // the uniform guess is 5.55
  EXPECT_NEAR(loss("float16") / float32, 1.0, 0.02);
  EXPECT_NEAR(loss("bfloat16") / float32, 1.0, 0.02);
}

TEST(Numerics, ScalingSavesSmallGradients) {
  const Training scaled = run_training({"--steps", "60", "--batch", "32"});
  const Training plain =
      run_training({"--steps", "60", "--batch", "32", "--loss-scale", "1"});
  EXPECT_GT(plain.underflow, 0);
  EXPECT_GT(plain.underflow, 10 * scaled.underflow);
  EXPECT_EQ(plain.skipped, 0);
}

TEST(Numerics, Float32LosesNothing) {
  const Training training =
      run_training({"--steps", "20", "--batch", "32", "--dtype", "float32"});
  EXPECT_EQ(training.underflow, 0);
}

}  // namespace
}  // namespace swamp::test
