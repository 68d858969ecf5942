// What loss scaling is for: float16 learns as well as float32, and loses no
// gradients that the dtype could have held.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/training.h"

namespace swamp::test {
namespace {

TEST(Numerics, Float16LearnsAsFloat32) {
  // The same first scale for all: no step is lost to a search for it.
  const auto loss = [](const char* dtype, const char* scale_option) {
    return run_training({"--steps", "200", "--batch", "32", "--dtype", dtype,
                         scale_option, "32768"})
        .final_loss;
  };
  const double float32 = loss("float32", "--loss-scale");
  EXPECT_LT(float32, 2.0);  // the uniform guess is 5.55
  EXPECT_NEAR(loss("float16", "--initial-loss-scale") / float32, 1.0, 0.02);
  EXPECT_NEAR(loss("bfloat16", "--loss-scale") / float32, 1.0, 0.02);
}

// The sanitizers make this one take most of a minute, and the bits are those of
// any other build.
#ifndef __SANITIZE_ADDRESS__
double final_loss_of_defaults(const char* dtype) {
  const ProgramResult result = run_program({"train", "--dtype", dtype});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string marker = "\nfinal loss ";
  const std::size_t place = result.out.find(marker);
  if (place == std::string::npos) return 0;
  return std::stod(result.out.substr(place + marker.size()));
}

TEST(Numerics, TheDefaultsLearnTheDefaultText) {
  if (!std::filesystem::exists("/usr/share/common-licenses/GPL-3")) {
    GTEST_SKIP() << "needs the default text, /usr/share/common-licenses/GPL-3";
  }
  const double float32 = final_loss_of_defaults("float32");
  EXPECT_LT(float32, 2.4);
  EXPECT_NEAR(final_loss_of_defaults("float16") / float32, 1.0, 0.02);
}
#endif

TEST(Numerics, ScalingSavesSmallGradients) {
  const Training scaled = run_training({"--steps", "60", "--batch", "32"});
  const Training plain =
      run_training({"--steps", "60", "--batch", "32", "--loss-scale", "1"});
  EXPECT_GT(plain.underflow, 0);
  EXPECT_GT(plain.underflow, 10 * scaled.underflow);
  EXPECT_EQ(plain.skipped, 0);
}

TEST(Numerics, WhatIsLostOnTheWayBackIsCountedToo) {
  const Training training =
      run_training({"--steps", "3", "--batch", "4", "--loss-scale", "1e-30"});
  // All 256 logits of a batch of 4: nothing is left for the layers before.
  EXPECT_EQ(training.activation_underflow, 3 * 4 * 256);
  EXPECT_EQ(training.underflow, 0);
}

TEST(Numerics, Float32LosesNothing) {
  const Training training =
      run_training({"--steps", "20", "--batch", "32", "--dtype", "float32"});
  EXPECT_EQ(training.underflow, 0);
  EXPECT_EQ(training.activation_underflow, 0);
}

}  // namespace
}  // namespace swamp::test
