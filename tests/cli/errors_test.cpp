// An error ends with exit code 2 and one line on stderr that names the cause; a
// usage error has one more, which points at --help. All output fits a terminal.
#include "support/errors.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/run_program.h"

namespace swamp::test {
namespace {

TEST(Usage, HelpAndVersionAnswer) {
  for (const Words& arguments : {Words("--help"),
                                 {},
                                 {"help"},
                                 {"help", "train"},
                                 {"info", "--help"},
                                 {"train", "--help"},
                                 {"train", "-h"}}) {
    EXPECT_TRUE(has_words(output_of(arguments), {"--help"}));
  }
  EXPECT_TRUE(
      has_words(run_program("train --help").out, {"--loss-scale-window"}));
  EXPECT_EQ(run_program("help train").out, run_program("train --help").out);
  EXPECT_EQ(run_program({}).out, run_program("--help").out);
  for (const char* option : {"--version", "-V"}) {
    const std::string version = output_of({option});
    EXPECT_EQ(version.rfind("swamp ", 0), 0u);
    EXPECT_EQ(lines_of(version).size(), 1u);
  }
}

TEST(Usage, MisspeltNamesGetASuggestion) {
  struct Row {
    Words words;
    std::vector<std::string> parts;
  };
  for (const Row& row :
       {Row{{"trian"}, {"'trian'", "(did you mean train?)"}},
        {{"scna", "x"}, {"'scna'", "scan, train or help (did you mean scan?)"}},
        {{"help", "inf"}, {"(did you mean info?)"}},
        {{"xyzzy"}, {"'xyzzy'", "train or help"}},
        {{"--", "info"},
         {"no command given, expected info, predict, replay, scan or train"}},
        {{"moe-report", "x"}, {"python -m swamp_torch.moe report"}},
        {{"info", "more"}, {"'more'"}},
        {{"info", "train"}, {"'train'"}},
        {{"info", "--jsn"}, {"'--jsn'", "(did you mean --json?)"}},
        {{"train", "a", "b", "c"}, {"'b'"}}}) {
    SCOPED_TRACE(row.words[0]);
    expect_error(run_program(row.words), row.parts, Hint::help);
  }
}

TEST(Output, FitsATerminal) {
  const TemporaryFile text(kShortText);
  for (const std::vector<std::string>& words :
       {Words("--help"),
        {"info", "--help"},
        {"predict", "--help"},
        {"replay", "--help"},
        {"scan", "--help"},
        {"train", "--help"},
        {"info"},
        {"predict", "--list", "gpt2-small"},
        {"predict", "--list", "8192", "--operation", "adam"},
        {"predict", "--list", "gpt2-small", "--core-groups", "1,6", "--tile",
         "1024,16384"},
        {"predict", "--operation", "attention", "--batch", "4", "--heads", "12",
         "--queries", "1024", "--keys", "1024", "--columns", "64", "--causal",
         "--rma"},
        {"predict", "--operation", "moe_unpermute", "--tokens", "65536",
         "--experts", "64", "--choices", "8", "--columns", "4096",
         "--core-groups", "1,6"},
        {"train", text.path(), "--steps", "300", "--batch", "1"},
        {"train", text.path(), "--steps", "2", "--batch", "4", "--scaler",
         "mindformers.AdaptiveLossScaleUpdateCell", "--scaler-option",
         "loss_scale_value=4294967296", "--scaler-option", "scale_factor=2",
         "--scaler-option", "scale_window=20"}}) {
    for (const std::string& line : lines_of(output_of(words))) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(BadOptions, NameOptionValueAndRange) {
  const struct {
    const char* option;
    const char* value;
    const char* expected;
  } rows[] = {{"--steps", "0", "1 to"},
              {"--steps", "-5", "1 to"},
              {"--steps", "ten", "integer"},
              {"--steps", "10x", "integer"},
              {"--steps", "", "integer"},
              {"--steps", "99999999999999999999", "integer"},
              {"--batch", "0", "1 to 4096"},
              {"--batch", "4097", "1 to 4096"},
              {"--seed", "-1", "0 to 18446744073709551615"},
              {"--seed", "18446744073709551616", "0 to"},
              {"--lr", "0", "number"},
              {"--lr", "-1e-3", "number"},
              {"--lr", "nan", "number"},
              {"--lr", "1e-3 ", "number"},
              {"--loss-scale", "-2", "number"},
              {"--loss-scale", "inf", "number"},
              {"--loss-scale", "1e39", "number"},
              {"--initial-loss-scale", "nan", "number"},
              {"--initial-loss-scale", "0x10", "number"},
              {"--loss-scale-window", "0", "number"},
              {"--min-loss-scale", "0", "number"},
              {"--hysteresis", "0", "1 to"},
              {"--hysteresis", "1.5", "integer"},
              {"--clip-grad", "-1", "number"},
              {"--accumulate", "0", "1 to"},
              {"--optimizer", "adamax", "adamw, adam or sgd"},
              {"--weight-decay", "-1", "number"},
              {"--adam-beta1", "1", "number"},
              {"--save-interval", "0", "1 to"},
              {"--checkpoint", "", "file"},
              {"--plot", "", "file"},
              {"--log-interval", "0", "1 to"},
              {"--log", "", "file"},
              {"--dtype", "float64", "bfloat16"},
              {"--dtype", "", "bfloat16"}};
  for (const auto& [option, value, expected] : rows) {
    expect_error(run_program({"train", option, value}),
                 {option, "'" + std::string(value) + "'", "expected", expected},
                 Hint::help);
  }
}

TEST(BadVariables, FailEveryCommand) {
  const TemporaryFile text(kShortText);
  const TemporaryFile log;
  for (const char* name : {"SWAMP_MACHINE", "SWAMP_BACKEND", "SWAMP_TRANSFER",
                           "SWAMP_CORE_GROUPS", "SWAMP_SLAVES_PER_GROUP",
                           "SWAMP_LDM_BYTES", "SWAMP_ISA", "SWAMP_BIND"}) {
    for (const Words& arguments :
         {Words("info"), Words("info --json"),
          Words{"train", text.path(), "--steps", "1", "--log", log.path()}}) {
      expect_error(run_program(arguments, {{name, "nonsense"}}),
                   {name, "nonsense"});
    }
  }
  EXPECT_EQ(log.read(), "");  // before any work
}

TEST(Text, MustBeAReadableFileThatIsLongEnough) {
  const TemporaryFile empty("");
  const TemporaryFile short_by_one("0123456789abcdef");
  const TemporaryFile enough("0123456789abcdefg");
  for (const auto& [path, cause] :
       {std::pair<std::string, std::string>("/nonexistent/text",
                                            "No such file"),
        {"/tmp", "directory"},
        {"/dev/null", "regular"},
        {empty.path(), "empty"},
        {short_by_one.path(), "16 bytes"},
        {"/no\nsuch", "/no?such"}}) {  // stays one line
    const bool shown = cause != "/no?such";
    expect_error(run_program({"train", path, "--steps", "1"}),
                 {shown ? path : cause, cause});
  }
  EXPECT_EQ(run_program({"train", enough.path(), "--steps", "1"}).exit_code, 0);
}

TEST(Log, MustBeWritableAndNotTheText) {
  const TemporaryFile text(kShortText);
  const auto train = [&](const std::string& log) {
    return run_program({"train", text.path(), "--steps", "1", "--log", log});
  };
  for (const std::string& log :
       {std::string("/nonexistent/log"), std::string("/tmp"), text.path()}) {
    expect_error(train(log), {"--log", log});
  }
  EXPECT_EQ(text.read(), kShortText);

  expect_late_error(train("/dev/full"), {"/dev/full"});
}

TEST(Stdout, FailingWriteIsAnError) {
  for (const Words& arguments : {Words("info"),
                                 {"info", "--json"},
                                 {"--help"},
                                 {"--version"},
                                 {"train", "--steps", "1"}}) {
    expect_error(run_program(arguments, {}, "/dev/full"), {"stdout"});
  }
}

// SIGPIPE ends the program without a message, as it ends other tools.
TEST(Stdout, APipeWithoutAReaderEndsQuietly) {
  const TemporaryFile text(kShortText);
  for (const Words& arguments : {Words("info"),
                                 {"--help"},
                                 {"predict", "--list", "1000"},
                                 {"train", text.path(), "--steps", "2"}}) {
    const ProgramResult result = run_command(
        Words{"/bin/bash", "-c", "exec 3> >(:); wait $!; exec \"$@\" >&3",
              "bash", kProgram} +
        arguments);
    EXPECT_EQ(result.exit_code, 128 + SIGPIPE) << arguments[0];
    EXPECT_EQ(result.err, "");
  }
}

}  // namespace
}  // namespace swamp::test
