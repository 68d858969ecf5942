// The log of a training, how the loss scale moves, and the picture of a run.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/errors.h"
#include "tests/cli/training.h"

namespace swamp::test {
namespace {

using nlohmann::json;

// expect_window() checks every move of a dynamic scale.
void expect_window(const std::vector<json>& steps, int window) {
  int clean = 0;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const double scale = steps[i].at("scale");
    double expected = scale;
    if (steps[i].at("found_inf") != 0.0) {
      expected = scale * 0.5;
      clean = 0;
    } else if (++clean == window) {
      expected = scale * 2;
      clean = 0;
    }
    ASSERT_EQ(steps[i + 1].at("scale").get<double>(), expected) << steps[i];
  }
}

TEST(Train, LogHasOneObjectAStep) {
  const Training training =
      run_training("--steps 25 --batch 4 --log-interval 7");
  ASSERT_EQ(training.steps.size(), 25u);
  long long skipped = 0;
  long long underflow = 0;
  long long activation_underflow = 0;
  for (std::size_t i = 0; i < training.steps.size(); ++i) {
    const json& step = training.steps[i];
    EXPECT_EQ(step.at("step"), i + 1);
    EXPECT_GT(step.at("loss").get<double>(), 0.0);
    EXPECT_EQ(step.at("skipped").get<bool>(), step.at("found_inf") == 1.0);
    EXPECT_EQ(step.contains("overflow_tensor"), step.at("skipped").get<bool>());
    skipped += step.at("skipped").get<bool>() ? 1 : 0;
    underflow += step.at("underflow").get<long long>();
    activation_underflow += step.at("activation_underflow").get<long long>();
  }
  EXPECT_EQ(training.skipped, skipped);
  EXPECT_EQ(training.underflow, underflow);
  EXPECT_EQ(training.activation_underflow, activation_underflow);
  EXPECT_EQ(training.weights.size(), 16u);
  EXPECT_EQ(training.weights.find_first_not_of("0123456789abcdef"),
            std::string::npos);
}

TEST(Train, PrintsEveryNthOverflowAndLastStep) {
  const Training training =
      run_training("--steps 25 --batch 4 --log-interval 7");
  for (std::size_t i = 0; i < 25; ++i) {
    const bool last = i + 1 == 25;
    const bool printed =
        (i + 1) % 7 == 0 || last ||
        training.steps[i].at("skipped").get<bool>() ||
        training.steps[i].at("scale") != training.steps[i + 1].at("scale");
    const std::string number = std::to_string(i + 1);
    const std::string line =
        "\nstep " + std::string(2 - number.size(), ' ') + number + "  ";
    EXPECT_EQ(training.out.find(line) != std::string::npos, printed) << line;
  }
}

TEST(Train, FirstStepsOverflowThenTheScaleGrowsAgain) {
  const Training training = run_training(
      "--steps 60 --batch 8 --loss-scale-window 10 --hysteresis 1");
  const std::vector<json>& steps = training.steps;
  EXPECT_EQ(steps[0].at("scale"), 4294967296.0);
  EXPECT_TRUE(steps[0].at("skipped").get<bool>());
  EXPECT_EQ(steps[0].at("overflow_tensor"), "embedding");
  EXPECT_GT(steps[0].at("overflow_elements").get<long long>(), 0);
  EXPECT_EQ(steps[1].at("scale"), 2147483648.0);
  EXPECT_GT(training.skipped, 4);
  EXPECT_LT(training.skipped, 30);
  bool grew = false;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    grew = grew || steps[i].at("scale") > steps[i - 1].at("scale");
  }
  EXPECT_TRUE(grew);
  expect_window(steps, 10);
}

TEST(Train, InitialScaleIsTheFirst) {
  const Training training =
      run_training("--steps 3 --batch 4 --initial-loss-scale 1024");
  EXPECT_EQ(training.steps[0].at("scale"), 1024.0);
  EXPECT_EQ(training.skipped, 0);
}

TEST(Train, ConstantScaleNeverMoves) {
  const Training training =
      run_training("--steps 4 --batch 4 --loss-scale 4294967296");
  EXPECT_EQ(training.skipped, 4);
  for (const json& step : training.steps) {
    EXPECT_EQ(step.at("scale"), 4294967296.0);
  }
  EXPECT_TRUE(
      has_words(training.out, {"\nfinal loss none: every step was skipped\n"}));
  EXPECT_EQ(training.out.find("not finite"), std::string::npos);
}

TEST(Train, OneStepIsNotCalledSteps) {
  const Training training =
      run_training("--steps 1 --batch 4 --initial-loss-scale 1024");
  EXPECT_TRUE(has_words(training.out, {"(mean of the last 1 step taken)\n"
                                       "skipped 0 of 1 step\n"}));
}

TEST(Train, DivergenceIsReportedAndNanHasNoSign) {
  const Training training =
      run_training("--steps 6 --batch 1 --lr 1e30 --initial-loss-scale 1");
  EXPECT_EQ(training.skipped, 5);
  EXPECT_TRUE(has_words(training.out, {"\nstep 2  loss nan  "}));
  EXPECT_EQ(training.out.find("-nan"), std::string::npos) << training.out;
  EXPECT_TRUE(
      has_words(training.out, {"\nthe loss was not finite from step 2 on\n"}));
}

// The model gives a target the probability 0: the loss is infinite, but its
// gradients are finite, so the step is taken.
TEST(Train, InfiniteLossOfAStepTakenIsReported) {
  const auto train = [](const char* steps) {
    return run_training({"--steps", steps, "--batch", "2", "--lr", "0.2",
                         "--loss-scale", "1", "--clip-grad", "0",
                         "--weight-decay", "0"});
  };
  const Training recovered = train("7");
  EXPECT_EQ(recovered.steps[4].at("loss"), "inf");
  EXPECT_FALSE(recovered.steps[4].at("skipped").get<bool>());
  EXPECT_TRUE(
      has_words(recovered.out, {"\nthe loss was not finite in 1 step taken, "
                                "first in step 5\n"}));
  const Training ended = train("5");
  EXPECT_TRUE(
      has_words(ended.out, {"\nthe loss was not finite from step 5 on\n"}));
}

TEST(Train, OtherDtypesAreNotScaled) {
  for (const char* dtype : {"bfloat16", "float32"}) {
    const Training training =
        run_training({"--steps", "3", "--batch", "4", "--dtype", dtype});
    EXPECT_EQ(training.skipped, 0) << dtype;
    for (const json& step : training.steps) {
      EXPECT_EQ(step.at("scale"), 1.0) << dtype;
    }
    const Training scaled =
        run_training({"--steps", "3", "--batch", "4", "--dtype", dtype,
                      "--loss-scale", "256"});
    EXPECT_EQ(scaled.steps[2].at("scale"), 256.0) << dtype;
  }
}

TEST(Train, TheNormIsLoggedBeforeClipping) {
  const auto norm = [](const char* clip) {
    const Training training =
        run_training({"--steps", "1", "--batch", "4", "--initial-loss-scale",
                      "1024", "--clip-grad", clip});
    return training.steps[0].at("grad_norm").get<double>();
  };
  EXPECT_GT(norm("0.25"), 0.25);
  EXPECT_EQ(norm("0.25"), norm("100"));
  EXPECT_EQ(norm("0"), 0.0);  // as in Megatron: not computed
  const Training skipped = run_training("--steps 1 --batch 4");
  EXPECT_TRUE(skipped.steps[0].at("grad_norm").is_null());
}

TEST(Train, AScaleWithoutAnInverseEndsTheRun) {
  const TemporaryFile text(sample_text());
  const ProgramResult small = run_program(
      {"train", text.path(), "--batch", "1", "--lr", "1e30", "--scaler",
       "torch.amp.GradScaler", "--scaler-option", "init_scale=1e-20"});
  expect_late_error(small, {"overflow even at loss scale"});
  const ProgramResult large =
      run_program({"train",           text.path(),
                   "--batch",         "1",
                   "--scaler",        "megatron.DynamicGradScaler",
                   "--scaler-option", "growth_interval=1",
                   "--dtype",         "float32",
                   "--scaler-option", "initial_scale=1e30",
                   "--scaler-option", "min_scale=1.0",
                   "--scaler-option", "hysteresis=1000",
                   "--scaler-option", "growth_factor=1e20",
                   "--scaler-option", "backoff_factor=0.5"});
  expect_late_error(large, {"has grown to inf"});
}

TEST(Train, InfinityAndNanAreStringsAndEndAnEndlessDivergence) {
  const TemporaryFile text(sample_text());
  const TemporaryFile log;
  // The first step makes the weights so large that all later losses are nan.
  const ProgramResult result = run_program(
      {"train", text.path(), "--steps", "300", "--batch", "1", "--lr", "1e30",
       "--initial-loss-scale", "1", "--log", log.path()});
  expect_late_error(result, {"diverged"});
  const std::vector<std::string> lines = lines_of(log.read());
  ASSERT_GT(lines.size(), 2u);
  EXPECT_LT(lines.size(), 300u);
  EXPECT_EQ(json::parse(lines.back()).at("loss"), "nan");
  EXPECT_TRUE(json::parse(lines.back()).at("skipped").get<bool>());
}

bool has_gnuplot() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (std::filesystem::exists(folder + "/gnuplot")) return true;
  }
  return false;
}

ProgramResult plot(const std::string& path, const Words& more,
                   const Environment& environment = {}) {
  const TemporaryFile text(sample_text());
  return run_program(
      Words{"train", text.path(), "--batch", "4", "--plot", path} + more,
      environment);
}

TEST(Plot, IsAPicture) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot";
  // The name must not be interpreted by gnuplot or a shell.
  const TemporaryFile folder;
  std::filesystem::create_directory(folder.path());
  const std::string base = folder.path() + "/'`x`\"$(x); a";
  for (const auto& [suffix, options] :
       {std::pair<const char*, std::vector<std::string>>(".png",
                                                         {"--steps", "30"}),
        {"", {"--steps", "1", "--dtype", "float32"}},
        {".PNG", {"--steps", "2", "--loss-scale", "4294967296"}},
        {".png", {"--steps", "6", "--bf16", "--lr", "1e30"}},
        {".svg", {"--steps", "30"}}}) {
    const std::string path = base + suffix;
    const ProgramResult result = plot(path, options);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    const ProgramResult read = run_command({"/bin/cat", path});
    EXPECT_GT(read.out.size(), 5000u);
    if (std::string(suffix) == ".svg") {
      EXPECT_EQ(read.out.rfind("<?xml", 0), 0u);
      EXPECT_TRUE(has_words(read.out, {"<svg"}));
      EXPECT_TRUE(has_words(read.out, {"</svg>"}));
    } else {
      EXPECT_EQ(read.out.substr(0, 8), "\x89PNG\r\n\x1a\n");
      EXPECT_EQ(read.out.substr(12, 4), "IHDR");
      EXPECT_EQ(read.out.substr(16, 8), std::string("\0\0\4\260\0\0\3\40", 8));
    }
    std::filesystem::remove(path);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // nothing partial
  }
}

TEST(Plot, IsDrawnOfAnInterruptedRun) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot";
  const TemporaryFile text(sample_text());
  const TemporaryFile log;
  const TemporaryFile picture;
  const ProgramResult result =
      run_command({kProgram, "train", text.path(), "--batch", "4", "--steps",
                   "1000000", "--log", log.path(), "--plot", picture.path()},
                  {}, "", -1, [&] { return lines_of(log.read()).size() >= 3; });
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(picture.read().substr(1, 3), "PNG");
  EXPECT_FALSE(std::filesystem::exists(picture.path() + ".partial"));
}

// The variable that limits the spinning of threads is only for libgomp.
TEST(Plot, GnuplotHasTheEnvironmentOfTheProgram) {
  const TemporaryFile text(sample_text());
  const TemporaryFile picture;
  const TemporaryFile folder;
  std::filesystem::create_directory(folder.path());
  const std::string gnuplot = folder.path() + "/gnuplot";
  std::ofstream(gnuplot) << "#!/bin/sh\nexec /usr/bin/env\n";
  std::filesystem::permissions(gnuplot, std::filesystem::perms::owner_all);
  const ProgramResult result = run_command(
      {"/usr/bin/env", "-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT",
       kProgram, "train", text.path(), "--batch", "4", "--steps", "1", "--plot",
       picture.path()},
      {{"PATH", folder.path() + ":/usr/bin:/bin"}, {"LAST", "value"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string seen = "\n" + picture.read();
  EXPECT_TRUE(has_words(seen, {"\nLAST=value\n"})) << seen;
  EXPECT_EQ(seen.find("GOMP_SPINCOUNT"), std::string::npos) << seen;
}

TEST(Plot, WithoutGnuplotTheRunSucceeds) {
  const TemporaryFile picture;
  const ProgramResult result =
      plot(picture.path(), {"--steps", "2"}, {{"PATH", "/nonexistent"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "swamp: --plot: no gnuplot here; '" + picture.path() +
                            "' is not written\n");
  EXPECT_EQ(lines_of(result.out).back().rfind("weights ", 0), 0u);
  EXPECT_FALSE(std::filesystem::exists(picture.path()));
}

}  // namespace
}  // namespace swamp::test
