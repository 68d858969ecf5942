// Ranks of mpirun: N ranks give the bits of one rank with N micro batches.
// Without MPI, several ranks are refused.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <set>

#include "support/errors.h"
#include "tests/cli/training.h"

namespace swamp::test {
namespace {

#ifdef SWAMP_MPIRUN

// A rank that hangs must not hang the test.
constexpr int kLimitMs = 120000;

struct Ranked {
  ProgramResult result;
  std::string log;
  std::string checkpoint;
};

// mpirun() begins a command of several ranks.
Words mpirun(int ranks) {
  if (ranks == 1) return {};
  return {SWAMP_MPIRUN, "-n", std::to_string(ranks)};
}

Ranked run_ranks(int ranks, const Words& options,
                 const std::string& text = sample_text()) {
  const TemporaryFile file(text);
  const TemporaryFile log;
  const TemporaryFile checkpoint;
  Ranked ranked;
  ranked.result =
      run_command(mpirun(ranks) +
                      Words{kProgram, "train", file.path(), "--log", log.path(),
                            "--checkpoint", checkpoint.path()} +
                      options,
                  {{"SWAMP_MPI_TIMEOUT", "60"}}, "", kLimitMs);
  ranked.log = log.read();
  ranked.checkpoint = checkpoint.read();
  return ranked;
}

// Only the first rank knows that the log cannot be written.
TEST(RanksFailure, OfOneRankEndsTheOthers) {
  const TemporaryFile text(sample_text());
  const ProgramResult result =
      run_command({SWAMP_MPIRUN, "-n", "3", kProgram, "train", text.path(),
                   "--batch", "4", "--log", "/dev/full"},
                  {}, "", kLimitMs);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(result.exit_code, 128) << "hung";
  EXPECT_TRUE(
      has_words(result.err, {"swamp: rank 0: cannot write to '/dev/full'"}));
}

class Ranks : public testing::TestWithParam<Words> {};

TEST_P(Ranks, GiveTheBitsOfOne) {
  const Words options = "--steps 14 --batch 4 --save-interval 5" + GetParam();
  const Ranked four = run_ranks(4, options);
  ASSERT_EQ(four.result.exit_code, 0) << four.result.err;
  EXPECT_TRUE(has_words(four.result.out, {"; 4 ranks\n"}));
  const Ranked one = run_ranks(1, options + "--accumulate 4");
  ASSERT_EQ(one.result.exit_code, 0) << one.result.err;
  EXPECT_EQ(lines_of(one.log).size(), 14u);
  EXPECT_EQ(four.log, one.log);
  EXPECT_TRUE(four.checkpoint == one.checkpoint);
  EXPECT_EQ(lines_of(four.result.out).back(), lines_of(one.result.out).back());
  EXPECT_EQ(lines_of(four.result.out).back().rfind("weights ", 0), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Mpi, Ranks,
    testing::Values(
        Words("--initial-loss-scale 16777216"), Words("--bf16 --optimizer sgd"),
        Words("--fp32-residual-connection --attention-softmax-in-fp32"),
        Words("--dtype float32"), Words("--fp8-format hybrid"),
        Words("--fp8-recipe tensorwise --fp8-format hybrid")),
    [](const testing::TestParamInfo<Words>& it) {
      return test_name(it.param[0]);
    });

// One micro batch at a time, on weights that do not move: which ones overflow.
std::set<int> overflowing_batches(const std::string& scale) {
  const Training training =
      run_training({"--steps", "4", "--batch", "4", "--lr", "1e-30",
                    "--weight-decay", "0", "--loss-scale", scale});
  std::set<int> batches;
  for (int i = 0; i < 4; ++i) {
    if (training.steps[static_cast<std::size_t>(i)].at("skipped")) {
      batches.insert(i);
    }
  }
  return batches;
}

TEST(RanksOverflow, OnOneRankSkipsTheStepOfAll) {
  for (int thousands = 32; thousands < 128; thousands += 4) {
    const std::string scale = std::to_string(1000 * thousands);
    const std::set<int> batches = overflowing_batches(scale);
    if (batches.empty() || batches.size() == 4) continue;
    const Words options = {"--steps",      "1",  "--batch", "4",
                           "--loss-scale", scale};
    const Ranked four = run_ranks(4, options);
    ASSERT_EQ(four.result.exit_code, 0) << four.result.err;
    EXPECT_TRUE(nlohmann::json::parse(lines_of(four.log)[0])["skipped"]);
    std::smatch ranks;
    ASSERT_TRUE(std::regex_search(
        four.result.out, ranks,
        std::regex("of rank ([0-3]), in the shard of rank [0-3]\n")))
        << four.result.out;
    EXPECT_EQ(batches.count(std::stoi(ranks[1])), 1u) << four.result.out;
    EXPECT_EQ(four.log, run_ranks(1, options + "--accumulate 4").log);
    return;
  }
  FAIL() << "no scale at which some micro batches overflow and some do not";
}

TEST(RanksFailure, EndsAllRanksAndIsReportedOnce) {
  const auto said = [](const Ranked& ranked, const std::string& text) {
    EXPECT_NE(ranked.result.exit_code, 0);
    EXPECT_LT(ranked.result.exit_code, 128) << "hung";
    int times = 0;
    for (const std::string& line : lines_of(ranked.result.err)) {
      times += line.rfind("swamp: " + text, 0) == 0 ? 1 : 0;
    }
    EXPECT_EQ(times, 1) << ranked.result.err;
  };
  said(run_ranks(3, {"--steps", "1"}, "short"), "text '");
  said(run_ranks(3, {"--steps", "300", "--batch", "1", "--lr", "1e30"}),
       "training has diverged");
  said(run_ranks(3, {"--scaler", "fairseq.DynamicLossScaler", "--scaler-option",
                     "init_scale=4294967296", "--scaler-option",
                     "min_loss_scale=2147483648.0"}),
       "step ");
  // Only the first rank draws the picture.
  said(run_ranks(3, {"--steps", "2", "--plot", "/nonexistent/picture"}),
       "--plot: got '/nonexistent/picture'");
}

TEST(RanksResume, ContinueARunOfOneRank) {
  const TemporaryFile text(sample_text());
  const TemporaryFile checkpoint;
  const auto run = [&](int ranks, const char* accumulate, const char* steps) {
    const ProgramResult result = run_command(
        mpirun(ranks) +
            Words{kProgram, "train", text.path(), "--steps", steps,
                  "--accumulate", accumulate, "--checkpoint",
                  checkpoint.path()} +
            "--batch 4 --resume --fp16 --initial-loss-scale 16777216",
        {}, "", kLimitMs);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const auto weights = [](const std::string& out) {
    return out.empty() ? "" : lines_of(out).back();
  };
  // Sums in another order have other bits; the message says so.
  const auto has_note = [](const std::string& out) {
    return out.find("\nnote: ") != std::string::npos &&
           out.find("the bits are not those of") != std::string::npos;
  };
  EXPECT_FALSE(has_note(run(1, "4", "8")));
  EXPECT_FALSE(has_note(run(4, "1", "12")));
  const std::string changed = run(1, "4", "16");
  EXPECT_FALSE(has_note(changed));
  EXPECT_TRUE(has_note(run(2, "2", "17")));
  EXPECT_FALSE(has_note(run(2, "2", "18")));
  EXPECT_TRUE(has_note(run(4, "1", "19")));
  std::filesystem::remove(checkpoint.path());
  EXPECT_EQ(weights(run(1, "4", "16")), weights(changed));
}

// Ctrl-C on one rank ends the run of all, after the same step.
TEST(RanksInterrupted, AllStopAfterTheSameStep) {
  const TemporaryFile text(sample_text());
  const TemporaryFile log;
  const TemporaryFile checkpoint;
  const TemporaryFile rank;
  bool sent = false;
  const ProgramResult result = run_command(
      {SWAMP_MPIRUN, "-n", "2", "/bin/bash", "-c",
       "[[ ${OMPI_COMM_WORLD_RANK:-0} == 0 ]] || echo $$ >" + rank.path() +
           "; exec \"$@\"",
       "bash", kProgram, "train", text.path(), "--batch", "4", "--steps",
       "1000000", "--log", log.path(), "--checkpoint", checkpoint.path()},
      {}, "", kLimitMs, [&] {
        if (lines_of(log.read()).size() < 3) return false;
        if (!sent) kill(std::stoi(rank.read()), SIGINT);
        sent = true;
        return false;
      });
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 128 + SIGKILL) << "hung";
  const std::string steps = std::to_string(lines_of(log.read()).size());
  EXPECT_TRUE(has_words(result.out, {"\nstopped after step " + steps +
                                     " of 1000000: Interrupt\n"}));
  EXPECT_TRUE(std::filesystem::exists(checkpoint.path()));
}

#else

TEST(Ranks, AreRefusedWithoutMpi) {
  expect_error(run_program("train --steps 1", {{"PMI_SIZE", "4"}}),
               {"4 ranks"});
}

#endif

}  // namespace
}  // namespace swamp::test
