// Ranks of mpirun: N ranks give the bits of one rank with N micro batches.
// Without MPI, several ranks are refused.
#include <gtest/gtest.h>

#include <algorithm>
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
constexpr int kLimitMs = 1200000;

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
                  {{"SWAMP_MPI_TIMEOUT", "600"}}, "", kLimitMs);
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

// Megatron's flags: the bits stay, and the times of all ranks are printed.
TEST(RanksTimers, ArePrinted) {
  const Words few = "--steps 4 --batch 4 --log-interval 2";
  const Ranked plain = run_ranks(2, few);
  const Ranked timed = run_ranks(
      2, few + Words("--use-distributed-optimizer --timing-log-level 1 "
                     "--barrier-with-L1-time"));
  ASSERT_EQ(timed.result.exit_code, 0) << timed.result.err;
  EXPECT_EQ(timed.log, plain.log);
  EXPECT_TRUE(
      has_words(timed.result.out,
                {"(min, max) time across ranks (ms):\n",
                 "    optimizer-unscale-and-check-inf.................: ("}));
  EXPECT_EQ(plain.result.out.find("time across"), std::string::npos);
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

// Every option of `swamp train`, given to the second of two ranks in addition
// to `both`: ranks that differ in it are refused, unless only the first one
// uses it.
struct OptionRow {
  const char* both;
  const char* second;
  const char* expected;  // or the whole error; "" if the ranks may differ

  std::string error() const {
    const std::string text = expected;
    const Words words = second;
    if (text.find(": got ") != std::string::npos) return text;
    return words[0] + ": got " + (words.size() > 1 ? words[1] : "true") +
           " on rank 1, expected " + text;
  }
};
void PrintTo(const OptionRow& row, std::ostream* out) { *out << row.second; }
const OptionRow kOptionRows[] = {
    {"", "--steps 5", "4"},
    {"", "--batch 8", "4"},
    {"", "--accumulate 2", "1"},
    {"", "--seed 7", "1"},
    {"", "--log /nonexistent/log", ""},
    {"", "--log-interval 2", ""},
    {"", "--checkpoint ck",
     "--checkpoint: got a file on rank 1, expected none"},
    {"--checkpoint ck --overwrite", "--save-interval 1", "100"},
    {"--checkpoint ck", "--resume", "none"},
    {"--checkpoint ck", "--overwrite", ""},
    {"", "--plot /nonexistent/picture.png", ""},
    {"", "--dtype float32", "float16"},
    {"", "--dtype float16", ""},
    {"", "--fp16", ""},
    {"", "--bf16", "--dtype: got bfloat16 on rank 1, expected float16"},
    {"", "--attention-softmax-in-fp32", "false"},
    {"--attention-softmax-in-fp32", "--apply-query-key-layer-scaling", "false"},
    {"", "--fp16-lm-cross-entropy", "false"},
    {"", "--fp32-residual-connection", "false"},
    {"", "--use-flash-attn", "none"},
    {"", "--fp8-format e4m3", "none"},
    {"--fp8-format e4m3", "--fp8-recipe mxfp8", "delayed"},
    {"--fp8-format e4m3", "--fp8-recipe delayed", ""},
    {"--fp8-format e4m3", "--fp8-margin 1", "0"},
    {"--fp8-format e4m3", "--fp8-amax-history-len 2", "1"},
    {"--fp8-format e4m3", "--fp8-amax-compute-algo max", "most_recent"},
    {"--batch 16", "--fp4-format e2m1", "none"},
    {"--batch 16 --fp4-format e2m1", "--fp4-recipe nvfp4", ""},
    {"", "--loss-scale 64", "none"},
    {"", "--initial-loss-scale 64", "4294967296"},
    {"", "--min-loss-scale 2", "1"},
    {"", "--loss-scale-window 2", "1000"},
    {"", "--hysteresis 1", "2"},
    {"", "--scaler torch.amp.GradScaler", "none"},
    {"--scaler torch.amp.GradScaler", "--scaler-option init_scale=64.0",
     "--scaler-option init_scale: got 64.0 on rank 1, expected none"},
    {"", "--optimizer sgd", "adamw"},
    {"", "--use-distributed-optimizer", ""},
    {"", "--timing-log-level 1",
     "--timing-log-level: got 1 or 2 every 10 steps on rank 1, expected 0"},
    {"--timing-log-level 1", "--log-interval 3",
     "--timing-log-level: got 1 or 2 every 3 steps on rank 1, expected 1 or 2 "
     "every 10 steps"},
    {"--timing-log-level 1", "--barrier-with-L1-time", "none"},
    {"", "--lr 1e-3", ""},
    {"", "--lr 0.5", "0.001"},
    {"", "--lr 0.0010000000000000002", "0.001"},
    {"", "--weight-decay 0.5", "0.01"},
    {"", "--adam-beta1 0.5", "0.9"},
    {"", "--adam-beta2 0.5", "0.999"},
    {"", "--adam-eps 0.5", "1e-08"},
    {"--optimizer sgd", "--sgd-momentum 0.5", "0.9"},
    {"", "--clip-grad 0.1", "1"}};

// run_two() runs two ranks; the second one has its own text, and more options.
// Steps and examples are few unless given.
ProgramResult run_two(const Words& options, const std::string& text,
                      const Words& more, const std::string& text_of_second) {
  const auto rank = [](const std::string& path, Words given) {
    for (const Words& few : {Words("--steps 4"), Words("--batch 4")}) {
      if (std::count(given.begin(), given.end(), few[0]) == 0) {
        given = given + few;
      }
    }
    return Words{"-n", "1", kProgram, "train", path} + given;
  };
  return run_command(Words{SWAMP_MPIRUN} + rank(text, options) + Words{":"} +
                         rank(text_of_second, options + more),
                     {{"SWAMP_MPI_TIMEOUT", "60"}}, "", kLimitMs);
}

void expect_refused(const ProgramResult& result, const std::string& text) {
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(result.exit_code, 128) << "hung";
  EXPECT_EQ(result.out, "");
  const std::string line = "swamp: " + text + " as on rank 0";
  int times = 0;
  for (const std::string& found : lines_of(result.err)) {
    times += found == line ? 1 : 0;
  }
  EXPECT_EQ(times, 1) << line << "\n" << result.err;
}

class RanksOption : public testing::TestWithParam<OptionRow> {};

TEST_P(RanksOption, ThatDiffersIsRefused) {
  const OptionRow& row = GetParam();
  const TemporaryFile text(sample_text());
  const TemporaryFile checkpoint;
  const auto words = [&](const char* line) {
    Words found = line;
    std::replace(found.begin(), found.end(), std::string("ck"),
                 checkpoint.path());
    return found;
  };
  const ProgramResult result =
      run_two(words(row.both), text.path(), words(row.second), text.path());
  if (*row.expected == '\0') {
    EXPECT_EQ(result.exit_code, 0) << result.err;
  } else {
    expect_refused(result, row.error());
    EXPECT_FALSE(std::filesystem::exists(checkpoint.path()));
  }
}

INSTANTIATE_TEST_SUITE_P(Mpi, RanksOption, testing::ValuesIn(kOptionRows),
                         [](const testing::TestParamInfo<OptionRow>& it) {
                           return test_name(it.param.second);
                         });

// The table has every option, so that a new one is not forgotten.
TEST(RanksOptions, AreAllCompared) {
  std::set<std::string> named;
  for (const OptionRow& row : kOptionRows) {
    named.insert(Words(row.second).front());
  }
  std::set<std::string> offered;
  for (const std::string& line : lines_of(output_of("train --help"))) {
    if (line.rfind("  --", 0) == 0) offered.insert(Words(line.c_str()).front());
  }
  EXPECT_EQ(named, offered);
}

TEST(RanksOptions, OtherTextsAreRefusedAndOtherNamesAreNot) {
  const TemporaryFile text(sample_text());
  const TemporaryFile copy(sample_text());
  std::string changed = sample_text();
  changed[100] ^= 1;
  const TemporaryFile other(changed);
  const ProgramResult refused = run_two("", text.path(), "", other.path());
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_TRUE(has_words(refused.err, {"swamp: TEXT: got one of 2",
                                      " on rank 1, expected "
                                      "one of 2"}));
  EXPECT_EQ(run_two("", text.path(), "", copy.path()).exit_code, 0);
}

// A rank that refuses its options, or only prints, must not leave the other one
// waiting.
TEST(RanksOptions, ARankThatDoesNotTrainEndsTheOther) {
  struct Row {
    Words options;
    const char* error;
  };
  for (const Row& row :
       {Row{"--lr none", "swamp: --lr: got "},
        {"--help", "swamp: got 2 ranks of mpirun and a request for help"},
        {"--chekpoint a", "swamp: got '--chekpoint'"}}) {
    const TemporaryFile text(sample_text());
    const ProgramResult result =
        run_two("", text.path(), row.options, text.path());
    EXPECT_NE(result.exit_code, 0);
    EXPECT_LT(result.exit_code, 128) << "hung";
    EXPECT_TRUE(has_words(result.err, {row.error}));
  }
}

// The launcher of another MPI starts single processes, which must not train
// alone.
TEST(RanksLaunched, ByAnotherMpiAreRefused) {
  expect_error(run_program("train --steps 1", {{"PMI_SIZE", "4"}}),
               {"got 4 ranks of mpirun and 1 of MPI"});
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
