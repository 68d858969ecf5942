// A run that is killed and resumed ends with the bits of one that ran through.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "master/cli/command.h"
#include "master/cli/train/checkpoint.h"
#include "master/cli/train/options.h"
#include "support/errors.h"
#include "tests/cli/training.h"

namespace swamp::test {
namespace {

// Folder is a run's files: text, log and checkpoint.
struct Folder {
  TemporaryFile text{sample_text()};
  TemporaryFile log;
  TemporaryFile checkpoint;

  Words arguments(const Words& more) const {
    return Words{kProgram,   "train",        text.path(),      "--log",
                 log.path(), "--checkpoint", checkpoint.path()} +
           more;
  }
  ProgramResult run(Words more, int kill_after_ms = -1) const {
    return run_command(arguments(std::move(more)), {}, "", kill_after_ms);
  }
  // The names in the checkpoint's folder.
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(checkpoint.path()).parent_path())) {
      found.insert(entry.path().filename());
    }
    return found;
  }
};
using Names = std::set<std::string>;

// without_time() is the last lines of a run without the one that differs.
std::string closing(const ProgramResult& result) {
  std::string text;
  bool found = false;
  for (const std::string& line : lines_of(result.out)) {
    found = found || line.rfind("final loss", 0) == 0;
    if (found && line.rfind("time ", 0) != 0) text += line + "\n";
  }
  return text;
}

class Resume : public testing::TestWithParam<Words> {};

// Killed at any moment, it ends with the same bits.
TEST_P(Resume, AfterKills) {
  const Words options = "--steps 60 --save-interval 3" + GetParam();
  const Folder whole;
  const ProgramResult uninterrupted = whole.run(options);
  ASSERT_EQ(uninterrupted.exit_code, 0) << uninterrupted.err;

  const Folder cut;
  std::mt19937 random(20261121);
  int kills = 0;
  ProgramResult last;
  for (int tries = 0; tries < 200; ++tries) {
    // Longer each time, so that even a slow machine reaches the end.
    last = cut.run(options + Words{"--resume"},
                   static_cast<int>(random() % 40) + 10 + 10 * tries);
    EXPECT_EQ(last.err, "");
    if (last.exit_code == 0) break;
    ASSERT_EQ(last.exit_code, 128 + 9);
    ++kills;
  }
  ASSERT_EQ(last.exit_code, 0);
  EXPECT_GT(kills, 2);
  EXPECT_EQ(closing(last), closing(uninterrupted));
  EXPECT_EQ(cut.log.read(), whole.log.read());
  EXPECT_EQ(cut.checkpoint.read(), whole.checkpoint.read());

  // All steps are done, so nothing changes.
  const ProgramResult again = cut.run(options + Words{"--resume"});
  EXPECT_EQ(closing(again), closing(uninterrupted));
  EXPECT_EQ(cut.checkpoint.read(), whole.checkpoint.read());
  EXPECT_EQ(cut.names(), Names{"file"});
}

INSTANTIATE_TEST_SUITE_P(
    Train, Resume,
    testing::Values(
        Words("--initial-loss-scale 67108864 --loss-scale-window 7 --batch 4"),
        Words("--dtype float32 --optimizer sgd --batch 4"),
        Words("--bf16 --accumulate 2 --batch 4"),
        Words("--bf16 --use-flash-attn --batch 4"),
        Words("--scaler fairseq.DynamicLossScaler --scaler-option "
              "init_scale=67108864 --batch 4"),
        Words("--fp32-residual-connection --fp16-lm-cross-entropy "
              "--attention-softmax-in-fp32 --batch 4"),
        Words("--fp8-format hybrid --fp8-amax-history-len 4 "
              "--fp8-amax-compute-algo max --batch 4"),
        Words("--fp4-format e2m1 --batch 16")),
    [](const testing::TestParamInfo<Words>& it) {
      return test_name(it.param[0] + it.param[1]).substr(0, 32);
    });

TEST(Checkpoint, ResumesWithMoreStepsAndReportsANewRun) {
  const Folder cut;
  const Words options = "--batch 4 --fp16";
  const ProgramResult first =
      cut.run(options + Words{"--steps", "5", "--resume"});
  EXPECT_TRUE(
      has_words(first.out, {"\nno checkpoint '" + cut.checkpoint.path() +
                            "' yet: from the beginning\n"}));
  const ProgramResult second =
      cut.run(options + Words{"--steps", "9", "--resume"});
  EXPECT_TRUE(has_words(second.out, {"\nresumed after step 5\n"}));
  const Folder whole;
  EXPECT_EQ(closing(whole.run(options + Words{"--steps", "9"})),
            closing(second));
}

TEST(Checkpoint, AnotherRunIsRefusedInWords) {
  const Folder folder;
  ASSERT_EQ(folder.run("--steps 4 --batch 4").exit_code, 0);
  const std::string before = folder.checkpoint.read();
  const auto refused = [&](Words more, const std::string& part) {
    expect_error(folder.run(Words{"--resume"} + more), {part});
  };
  refused({"--steps", "4", "--batch", "8"}, "made with --batch 4, expected 8");
  refused({"--batch", "4", "--dtype", "bfloat16"},
          "made with --dtype float16, expected bfloat16");
  refused({"--batch", "4", "--lr", "0.5"},
          "made with --lr 0.001, expected 0.5");
  refused({"--batch", "4", "--accumulate", "2"},
          "made with micro batches in a step 1, expected 2");
  refused({"--batch", "4", "--scaler", "torch.amp.GradScaler"},
          "made with --scaler none, expected torch.amp.GradScaler");
  refused({"--batch", "4", "--optimizer", "sgd"},
          "made with --optimizer adamw, expected sgd");
  refused({"--batch", "4", "--loss-scale", "64"},
          "made with --loss-scale none, expected 64");
  refused({"--batch", "4", "--steps", "3"}, "made after 4 steps");
  for (const char* flag :
       {"--attention-softmax-in-fp32", "--apply-query-key-layer-scaling",
        "--fp16-lm-cross-entropy", "--fp32-residual-connection"}) {
    refused({"--batch", "4", flag},
            std::string("made with ") + flag + " false, expected true");
  }
  refused({"--batch", "4", "--use-flash-attn"},
          "made with --use-flash-attn none, expected true");
  refused({"--batch", "4", "--fp8-format", "e4m3"},
          "made with --fp8-format none, expected e4m3");
  std::ofstream(folder.log.path(), std::ios::app) << "more\n";
  EXPECT_EQ(folder.run("--resume --batch 4 --steps 4").exit_code,
            0);  // the part after the checkpoint is removed
  std::ofstream(folder.log.path()) << "another log\n";
  refused({"--batch", "4"}, "expected the log of the run that is resumed");
  EXPECT_EQ(folder.log.read(), "another log\n");
  std::ofstream(folder.text.path(), std::ios::app) << "more";
  refused({"--batch", "4"}, "made with text of 2");
  EXPECT_EQ(folder.checkpoint.read(), before);
}

// Delayed scales follow the amax of a step, also of one that is skipped.
TEST(Checkpoint, HasTheDelayedScales) {
  const Folder folder;
  const ProgramResult result = folder.run(
      "--steps 1 --batch 4 --initial-loss-scale 67108864 --fp8-format hybrid "
      "--fp8-amax-history-len 2");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(has_words(result.out, {"\nlinear layers in hybrid, delayed\n"}));
  ASSERT_EQ(nlohmann::json::parse(folder.log.read())["skipped"], true);
  const std::string file = folder.checkpoint.read();
  const auto scales =
      nlohmann::json::parse(cli::decode_checkpoint(file).trainer.scales);
  EXPECT_EQ(scales["recipe"], "DelayedScaling");
  ASSERT_EQ(scales["scale_fwd"].size(), 12u);
  ASSERT_EQ(scales["amax_history_fwd"].size(), 2u);
  for (std::size_t i = 0; i < 12; ++i) {
    const float amax = scales["amax_history_fwd"][1][i];
    EXPECT_GT(amax, 0);
    EXPECT_EQ(scales["scale_fwd"][i], 448 / amax);
  }
  ASSERT_EQ(scales["scale_bwd"].size(), 6u);
}

TEST(Checkpoint, DamageIsRefused) {
  const Folder folder;
  const Words options = "--steps 2 --batch 4";
  ASSERT_EQ(folder.run(options).exit_code, 0);
  const std::string good = folder.checkpoint.read();
  ASSERT_GT(good.size(), 4000000u);
  std::vector<std::string> bad = {"", "{}", good + "x"};
  for (const std::size_t size :
       {std::size_t{7}, std::size_t{100}, good.size() / 2, good.size() - 1}) {
    bad.push_back(good.substr(0, size));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    // Half of them in the header.
    const std::size_t place = random() % (i % 2 == 0 ? 3000 : good.size());
    bad.push_back(good);
    bad.back()[place] = static_cast<char>(bad.back()[place] ^ 1 << i % 7);
  }
  for (const std::string& content : bad) {
    std::ofstream(folder.checkpoint.path(), std::ios::binary) << content;
    expect_error(folder.run(options + Words{"--resume"}),
                 {"--resume: '" + folder.checkpoint.path() + "': "});
  }
  std::string old = good;  // from before the model had attention
  const std::string format = "swamp train 2";
  old[old.find(format) + format.size() - 1] = '1';
  std::ofstream(folder.checkpoint.path(), std::ios::binary) << old;
  expect_error(folder.run(options + Words{"--resume"}),
               {"swamp.format: got 'swamp train 1', expected 'swamp train 2'"});
  std::ofstream(folder.checkpoint.path(), std::ios::binary) << good;
  EXPECT_EQ(folder.run(options + Words{"--resume"}).exit_code, 0);
}

TEST(Checkpoint, UnwritableFilesAreErrorsBeforeAnyStep) {
  const TemporaryFile text(sample_text());
  for (const char* option : {"--checkpoint", "--plot"}) {
    for (const std::string& path :
         {std::string("/nonexistent/file"), std::string("/tmp"),
          std::string("/dev/full"), text.path()}) {
      expect_error(run_program({"train", text.path(), option, path}),
                   {std::string(option) + ": got '" + path + "'"});
    }
  }
  EXPECT_EQ(text.read(), sample_text());
}

TEST(Checkpoint, AnErrorThatIsNotEnoentIsNotAMissingFile) {
  const Folder folder;
  std::filesystem::create_symlink(folder.checkpoint.path(),
                                  folder.checkpoint.path());
  const std::string below_a_file = folder.text.path() + "/file";
  std::string content;
  for (const std::string& path :
       {folder.checkpoint.path(), below_a_file, std::string(5000, 'x')}) {
    EXPECT_THROW(cli::read_checkpoint(path, content), cli::Failure);
    expect_error(run_program({"train", folder.text.path(), "--steps", "1",
                              "--resume", "--checkpoint", path}),
                 {"--checkpoint: got '" + path + "'"});
  }
  EXPECT_FALSE(cli::read_checkpoint("/nonexistent/file", content));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.checkpoint.path()));
}

TEST(Checkpoint, IsOverwrittenOnlyIfAsked) {
  const Folder folder;
  ASSERT_EQ(folder.run("--steps 4 --batch 4").exit_code, 0);
  const std::string checkpoint = folder.checkpoint.read();
  const std::string log = folder.log.read();
  const ProgramResult refused = folder.run("--steps 2 --batch 4");
  expect_error(refused, {"--checkpoint: got '" + folder.checkpoint.path() + "'",
                         "--resume", "--overwrite"});
  EXPECT_EQ(folder.checkpoint.read(), checkpoint);
  EXPECT_EQ(folder.log.read(), log);
  for (int i = 0; i < 2; ++i) {  // with a file, and without one
    EXPECT_EQ(folder.run("--steps 2 --batch 4 --overwrite").exit_code, 0);
    EXPECT_NE(folder.checkpoint.read(), checkpoint);
    std::filesystem::remove(folder.checkpoint.path());
  }
}

// The option that was changed is named, not one that it brings or removes.
TEST(Checkpoint, TheOptionThatDiffersIsNamed) {
  using Options = std::map<std::string, std::string>;
  const Options dynamic = {{"--scaler", "none"}, {"--hysteresis", "2"}};
  struct Row {
    Options made_with;
    Options given;
    const char* error;  // "" if they agree
  };
  for (const Row& row :
       {Row{dynamic,
            {{"--scaler", "none"}, {"--loss-scale", "64"}},
            "--loss-scale none, expected 64"},
        {{{"--scaler", "none"}, {"--loss-scale", "64"}},
         dynamic,
         "--loss-scale 64, expected none"},
        {dynamic,
         {{"--scaler", "apex.LossScaler"}},
         "--scaler none, expected apex.LossScaler"},
        {{{"--scaler", "apex.LossScaler"}},
         dynamic,
         "--scaler apex.LossScaler, expected none"},
        {{},
         {{"--fp8-format", "e4m3"}, {"--fp8-amax-compute-algo", "max"}},
         "--fp8-format none, expected e4m3"},
        {{{"--fp8-format", "e4m3"}, {"--fp8-amax-compute-algo", "max"}},
         {},
         "--fp8-format e4m3, expected none"},
        {{{"--fp4-format", "e2m1"}, {"--fp4-recipe", "nvfp4"}},
         {{"--fp8-format", "e4m3"}, {"--fp8-recipe", "mxfp8"}},
         "--fp4-format e2m1, expected none"},
        {{{"--use-flash-attn", "true"}},
         {},
         "--use-flash-attn true, expected none"},
        {{{"--use-flash-attn", "none"}}, {}, ""},
        {dynamic, dynamic, ""}}) {
    std::string error;
    try {
      cli::check_options(cli::choices(row.made_with), cli::choices(row.given));
    } catch (const cli::Failure& failure) {
      error = failure.what();
    }
    EXPECT_EQ(error, (*row.error == '\0' ? "" : "made with ") +
                         std::string(row.error));
  }
}

// Every row names one file twice; the run is refused and changes no file.
TEST(Checkpoint, OneFileByTwoNamesIsRefused) {
  const TemporaryFile folder;
  std::filesystem::create_directories(folder.path() + "/sub");
  const auto file = [&](const char* name) {
    return folder.path() + "/" + name;
  };
  const auto make = [&](const char* name) {
    std::ofstream(file(name)) << name;
  };
  make("a");
  std::filesystem::create_hard_link(file("a"), file("hard"));
  std::filesystem::create_symlink("a", file("soft"));
  std::filesystem::create_symlink("new", file("dangling"));
  std::filesystem::create_symlink("sub/../new", file("dangling_too"));
  std::filesystem::create_symlink(".", file("folder"));
  std::ofstream(file("text")) << sample_text();
  std::filesystem::create_hard_link(file("text"), file("ck.lock"));
  std::filesystem::create_hard_link(file("text"), file("text_too"));
  std::filesystem::create_hard_link(file("text"), file("drawn.png"));
  struct Row {
    const char* text;
    const char* option;
    const char* path;
    const char* other;
    const char* other_path;
  };
  for (const Row& row :
       {Row{"text", "--log", "a", "--plot", "hard"},
        {"text", "--log", "soft", "--plot", "a"},
        {"text", "--log", "new", "--checkpoint", "new"},
        {"text", "--log", "new", "--checkpoint", "./new"},
        {"text", "--log", "new", "--checkpoint", "sub/../new"},
        {"text", "--log", "new", "--checkpoint", "folder/new"},
        {"text", "--log", "dangling", "--checkpoint", "new"},
        {"text", "--log", "dangling", "--checkpoint", "dangling_too"},
        {"text", "--plot", "new", "--checkpoint", "./new"},
        {"text", "--log", "new.lock", "--checkpoint", "new"},
        {"text", "--log", "folder/new.lock", "--checkpoint", "new"},
        {"text", "--checkpoint", "new.lock", "--log", "new"},
        {"text", "--checkpoint", "new.lock", "--log", "dangling"},
        {"text", "--checkpoint", "new.lock", "--plot", "dangling"},
        {"ck.lock", "--log", "b", "--checkpoint", "ck"},
        {"text", "--checkpoint", "text", "--log", "b"},
        {"text", "--log", "folder/text", "--plot", "b"},
        {"text", "--plot", "drawn.png", "--log", "b"},
        {"sub/../text", "--plot", "folder/text", "--log", "b"},
        {"text_too", "--checkpoint", "./text", "--overwrite", ""},
        {"text", "--checkpoint", "./text", "--overwrite", ""}}) {
    SCOPED_TRACE(std::string(row.option) + " " + row.path + " " + row.other);
    std::vector<std::string> words = {"train",  file(row.text), "--steps",
                                      "1",      row.option,     file(row.path),
                                      row.other};
    if (*row.other_path != '\0') words.push_back(file(row.other_path));
    expect_error(run_program(words), {"the same file as "});
    EXPECT_FALSE(std::filesystem::exists(file("new")));
    EXPECT_FALSE(std::filesystem::exists(file("new.lock")));
    EXPECT_FALSE(std::filesystem::exists(file("b")));
    EXPECT_EQ(run_command({"/bin/cat", file("a")}).out, "a");
    EXPECT_EQ(run_command({"/bin/cat", file("text")}).out, sample_text());
  }
}

// While a run lives, another one that would write its log, its checkpoint or
// its picture, by any option and any name, is refused, and nothing of the first
// one changes.
TEST(Checkpoint, AFileOfARunThatStillRunsIsRefused) {
  struct Mode {
    const char* interval;
    bool made_before;  // the checkpoint is that of an earlier run
  };
  for (const Mode& run :
       {Mode{"1", false}, {"1000000", false}, {"1000000", true}}) {
    const Folder folder;
    const std::string own =
        std::filesystem::path(folder.checkpoint.path()).parent_path().string() +
        "/";
    std::filesystem::create_symlink(".", own + "link");
    std::filesystem::create_symlink("file", own + "soft");
    const std::string log = folder.log.path();
    std::filesystem::create_symlink(log, own + "soft_log");
    const Words options =
        Words("--batch 4 --bf16 --save-interval") + Words{run.interval};
    if (run.made_before) {
      ASSERT_EQ(folder.run(options + "--steps 1").exit_code, 0);
    }
    const ProgramResult first = run_command(
        folder.arguments(options + "--steps 1000000 --resume" +
                         Words{"--plot", own + "a b.png"}),
        {{"PATH", "/nonexistent"}}, "", -1, [&] {
          if (lines_of(folder.log.read()).size() < 3) return false;
          std::filesystem::create_hard_link(log, log + "_too");
          if (run.made_before) {
            std::filesystem::create_hard_link(own + "file", own + "hard");
          }
          struct Row {
            const char* option;
            std::string path;
            Words more;
            bool made_before = false;  // only in that mode
          };
          for (const Row& row :
               {Row{"--checkpoint", own + "file", "--bf16 --resume"},
                {"--checkpoint", own + "file", "--fp16 --resume"},
                {"--checkpoint", own + "file", "--bf16 --overwrite"},
                {"--checkpoint", own + "file", "--bf16"},
                {"--checkpoint", own + "./link/./file", "--bf16 --resume"},
                {"--checkpoint", own + "link/file", "--bf16 --resume"},
                {"--checkpoint", own + "soft", "--bf16 --overwrite"},
                {"--checkpoint", own + "file.lock", "--bf16 --overwrite"},
                {"--checkpoint", log, "--bf16 --overwrite"},
                {"--checkpoint", log + "_too", "--bf16 --overwrite"},
                {"--checkpoint", own + "soft_log", "--bf16 --overwrite"},
                {"--checkpoint", own + "a b.png", "--bf16 --overwrite"},
                {"--log", log, "--bf16"},
                {"--log", log + "_too", "--bf16"},
                {"--log", own + "soft_log", "--bf16"},
                {"--log", own + "file", "--bf16"},
                {"--log", own + "link/file", "--bf16"},
                {"--log", own + "soft", "--bf16"},
                {"--log", own + "hard", "--bf16", true},
                {"--log", own + "file.lock", "--bf16"},
                {"--log", own + "a b.png", "--bf16"},
                {"--plot", own + "file", "--bf16"},
                {"--plot", own + "soft", "--bf16"},
                {"--plot", log, "--bf16"},
                {"--plot", own + "link/a b.png", "--bf16"}}) {
            if (row.made_before && !run.made_before) continue;
            SCOPED_TRACE(row.option + (" " + row.path));
            expect_error(
                run_program(Words{"train", folder.text.path(), "--batch", "4",
                                  "--steps", "1", row.option, row.path} +
                            row.more),
                {std::string(row.option) + ": got '" + row.path +
                 "', which another run writes, expected another "
                 "name, or the end of that run"});
          }
          std::filesystem::remove(own + "hard");
          return true;
        });
    EXPECT_EQ(first.exit_code, 128 + SIGINT);
    EXPECT_EQ(first.err, "swamp: --plot: no gnuplot here; '" + own +
                             "a b.png' is not written\n");
    EXPECT_EQ(folder.names(), (Names{"file", "link", "soft", "soft_log"}));
    const Words steps = {
        "--steps", std::to_string(lines_of(folder.log.read()).size() + 1)};
    const Folder whole;
    EXPECT_EQ(closing(folder.run(options + steps + "--resume")),
              closing(whole.run(options + steps)));
    EXPECT_EQ(folder.log.read(), whole.log.read());
  }
}

// A killed run leaves a file without a lock, and perhaps an incomplete one. The
// next run removes them, but nothing that another process has locked, and no
// other file.
TEST(Checkpoint, WhatAKilledRunHasLeftIsRemoved) {
  const Folder folder;
  const std::string path = folder.checkpoint.path();
  const Names others = {"file.partial",
                        "file.partial-0123456g",
                        "file.partial-01234567",
                        "file.partial-012345678",
                        "file.png.partial-0123456a",
                        "precious"};
  const std::string own =
      std::filesystem::path(path).parent_path().string() + "/";
  for (const std::string& name : others) std::ofstream(own + name) << name;
  std::filesystem::remove(own + "file.partial");
  std::filesystem::create_hard_link(own + "precious", own + "file.partial");
  const int used = open((own + "file.partial-01234567").c_str(), O_RDONLY);
  ASSERT_EQ(flock(used, LOCK_EX | LOCK_NB), 0);
  for (const char* left : {".lock", ".partial-0123456a", ".partial-ffffffff"}) {
    const std::ofstream file(path + left);
  }
  const ProgramResult result = folder.run("--steps 1 --batch 4");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  close(used);
  Names expected = others;
  expected.insert("file");
  EXPECT_EQ(folder.names(), expected);
  for (const std::string& name : others) {
    EXPECT_EQ(read_file(own + name),
              name == "file.partial" ? "precious" : name);
  }
}

// The lock is a file of swamp's, which is empty.
TEST(Checkpoint, ALockThatIsNotSwampsIsRefused) {
  const auto make = [](const std::string& name, int kind) {
    if (kind == 0) std::ofstream(name) << "text";
    if (kind == 1) std::filesystem::create_directory(name);
    if (kind == 2) std::filesystem::create_symlink("nowhere", name);
    if (kind == 3) {
      ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
    }
  };
  for (int kind = 0; kind < 4; ++kind) {
    const Folder folder;
    const std::string lock = folder.checkpoint.path() + ".lock";
    make(lock, kind);
    const auto before = std::filesystem::symlink_status(lock);
    expect_error(folder.run("--steps 1"),
                 {"--checkpoint: got '" + folder.checkpoint.path() +
                  "', expected a writable file: its lock '" + lock + "': "});
    EXPECT_EQ(std::filesystem::symlink_status(lock).type(), before.type());
    EXPECT_EQ(folder.names(), Names{"file.lock"});
    if (kind == 0) {
      EXPECT_EQ(read_file(lock), "text");
    }
  }
}

// A checkpoint has the permissions that any new file has, and keeps those that
// it is given.
TEST(Checkpoint, KeepsItsPermissions) {
  const Folder folder;
  ASSERT_EQ(folder.run("--steps 1 --batch 4").exit_code, 0);
  const auto mode = [](const std::string& path) {
    struct stat status;
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode(folder.checkpoint.path()), mode(folder.text.path()));
  for (const mode_t wanted : {0600u, 0640u, 0666u}) {
    ASSERT_EQ(chmod(folder.checkpoint.path().c_str(), wanted), 0);
    ASSERT_EQ(folder.run("--steps 2 --batch 4 --overwrite").exit_code, 0);
    EXPECT_EQ(mode(folder.checkpoint.path()), wanted);
  }
}

// Ctrl-C ends a run after its step: nothing is lost, and a shell sees the
// signal.
TEST(Checkpoint, AnInterruptedRunIsFinishedInOrder) {
  const Folder folder;
  const Words options = "--batch 4 --fp16 --save-interval 100000";
  const TemporaryFile picture;
  const ProgramResult result = run_command(
      folder.arguments(options + Words{"--steps", "1000000", "--plot",
                                       picture.path(), "--log-interval", "1"}),
      {{"PATH", "/nonexistent"}}, "", -1,
      [&] { return lines_of(folder.log.read()).size() >= 3; });
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(result.err, "swamp: --plot: no gnuplot here; '" + picture.path() +
                            "' is not written\n");
  const std::string steps = std::to_string(lines_of(folder.log.read()).size());
  EXPECT_EQ(folder.log.read().back(), '\n');
  EXPECT_TRUE(has_words(result.out, {"\nstopped after step " + steps +
                                     " of 1000000: Interrupt\n"}));
  EXPECT_TRUE(has_words(closing(result), {" of " + steps + " steps\n"}));
  EXPECT_EQ(folder.names(), Names{"file"});
  // The checkpoint contains the run up to here.
  const Folder whole;
  const std::vector<std::string> same = options + Words{"--steps", steps};
  EXPECT_EQ(closing(folder.run(same + Words{"--resume"})),
            closing(whole.run(same)));
  EXPECT_EQ(folder.log.read(), whole.log.read());
}

}  // namespace
}  // namespace swamp::test
