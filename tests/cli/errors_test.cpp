// What goes wrong ends with exit code 2 and one line on stderr that names the
// cause; a usage error has one more that points at --help.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/run_program.h"

namespace swamp::test {
namespace {

void expect_error(const ProgramResult& result, std::size_t line_count,
                  const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), line_count) << result.err;
  EXPECT_EQ(lines[0].rfind("swamp: ", 0), 0u) << lines[0];
  for (const std::string& part : parts) {
    EXPECT_NE(lines[0].find(part), std::string::npos)
        << "'" << part << "' is not in: " << lines[0];
  }
  if (line_count == 2) {
    EXPECT_NE(lines[1].find("--help"), std::string::npos) << lines[1];
  }
}

// expect_text_error() trains on what is no text.
void expect_text_error(const std::string& path, const std::string& cause) {
  expect_error(run_program({"train", path, "--steps", "1"}), 1, {path, cause});
}

TEST(Usage, HelpAndVersionAnswer) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"},
        {},
        {"help"},
        {"help", "train"},
        {"info", "--help"},
        {"train", "--help"},
        {"train", "-h"}}) {
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_NE(result.out.find("--help"), std::string::npos);
  }
  EXPECT_NE(run_program({"train", "--help"}).out.find("--loss-scale-window"),
            std::string::npos);
  EXPECT_EQ(run_program({"help", "train"}).out,
            run_program({"train", "--help"}).out);
  EXPECT_EQ(run_program({}).out, run_program({"--help"}).out);
  for (const char* option : {"--version", "-V"}) {
    const ProgramResult version = run_program({option});
    EXPECT_EQ(version.exit_code, 0);
    EXPECT_EQ(version.out.rfind("swamp ", 0), 0u);
    EXPECT_EQ(lines_of(version.out).size(), 1u);
  }
}

TEST(Usage, WhatIsMisspeltIsNamedWithASuggestion) {
  expect_error(run_program({"trian"}), 2, {"'trian'", "(did you mean train?)"});
  expect_error(run_program({"scna", "x"}), 2,
               {"'scna'", "scan, train or help (did you mean scan?)"});
  expect_error(run_program({"help", "inf"}), 2, {"(did you mean info?)"});
  expect_error(run_program({"xyzzy"}), 2, {"'xyzzy'", "train or help"});
  expect_error(run_program({"--", "info"}), 2, {"no command"});
  expect_error(run_program({"info", "more"}), 2, {"'more'"});
  expect_error(run_program({"info", "train"}), 2, {"'train'"});
  expect_error(run_program({"info", "--jsn"}), 2,
               {"'--jsn'", "(did you mean --json?)"});
  expect_error(run_program({"train", "a", "b", "c"}), 2, {"'b'"});
}

struct BadOption {
  const char* option;
  const char* value;
  const char* expected;
};

class BadOptions : public testing::TestWithParam<BadOption> {};

TEST_P(BadOptions, NamesOptionValueAndRange) {
  const auto [option, value, expected] = GetParam();
  expect_error(run_program({"train", option, value}), 2,
               {option, "'" + std::string(value) + "'", "expected", expected});
}

INSTANTIATE_TEST_SUITE_P(
    Train, BadOptions,
    testing::Values(
        BadOption{"--steps", "0", "1 to"}, BadOption{"--steps", "-5", "1 to"},
        BadOption{"--steps", "ten", "integer"},
        BadOption{"--steps", "10x", "integer"},
        BadOption{"--steps", "", "integer"},
        BadOption{"--steps", "99999999999999999999", "integer"},
        BadOption{"--batch", "0", "1 to 4096"},
        BadOption{"--batch", "4097", "1 to 4096"},
        BadOption{"--seed", "-1", "0 to 18446744073709551615"},
        BadOption{"--seed", "18446744073709551616", "0 to"},
        BadOption{"--lr", "0", "number"}, BadOption{"--lr", "-1e-3", "number"},
        BadOption{"--lr", "nan", "number"},
        BadOption{"--lr", "1e-3 ", "number"},
        BadOption{"--loss-scale", "-2", "number"},
        BadOption{"--loss-scale", "inf", "number"},
        BadOption{"--loss-scale", "1e39", "number"},
        BadOption{"--initial-loss-scale", "nan", "number"},
        BadOption{"--initial-loss-scale", "0x10", "number"},
        BadOption{"--loss-scale-window", "0", "number"},
        BadOption{"--min-loss-scale", "0", "number"},
        BadOption{"--hysteresis", "0", "1 to"},
        BadOption{"--hysteresis", "1.5", "integer"},
        BadOption{"--clip-grad", "-1", "number"},
        BadOption{"--accumulate", "0", "1 to"},
        BadOption{"--optimizer", "adamax", "adamw, adam or sgd"},
        BadOption{"--weight-decay", "-1", "number"},
        BadOption{"--adam-beta1", "1", "number"},
        BadOption{"--save-interval", "0", "1 to"},
        BadOption{"--checkpoint", "", "file"}, BadOption{"--plot", "", "file"},
        BadOption{"--log-interval", "0", "1 to"},
        BadOption{"--log", "", "file"},
        BadOption{"--dtype", "float64", "bfloat16"},
        BadOption{"--dtype", "", "bfloat16"}),
    [](const testing::TestParamInfo<BadOption>& it) {
      return test_name(std::string(it.param.option) + " " + it.param.value);
    });

class BadVariables : public testing::TestWithParam<const char*> {};

TEST_P(BadVariables, FailEveryCommand) {
  const TemporaryFile text("a text of more than seventeen bytes");
  const TemporaryFile log;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info"},
        {"info", "--json"},
        {"train", text.path(), "--steps", "1", "--log", log.path()}}) {
    expect_error(run_program(arguments, {{GetParam(), "nonsense"}}), 1,
                 {GetParam(), "nonsense"});
  }
  EXPECT_EQ(log.read(), "");  // before any work
}

INSTANTIATE_TEST_SUITE_P(Swamp, BadVariables,
                         testing::Values("SWAMP_MACHINE", "SWAMP_BACKEND",
                                         "SWAMP_TRANSFER", "SWAMP_CORE_GROUPS",
                                         "SWAMP_SLAVES_PER_GROUP",
                                         "SWAMP_LDM_BYTES", "SWAMP_ISA",
                                         "SWAMP_BIND"),
                         [](const testing::TestParamInfo<const char*>& it) {
                           return test_name(it.param);
                         });

TEST(Text, MustBeAReadableFileThatIsLongEnough) {
  const TemporaryFile empty("");
  const TemporaryFile short_by_one("0123456789abcdef");
  const TemporaryFile enough("0123456789abcdefg");
  expect_text_error("/nonexistent/text", "No such file");
  expect_text_error("/tmp", "directory");
  expect_text_error("/dev/null", "regular");
  expect_text_error(empty.path(), "empty");
  expect_text_error(short_by_one.path(), "16 bytes");
  EXPECT_EQ(run_program({"train", enough.path(), "--steps", "1"}).exit_code, 0);
}

TEST(Text, NameWithANewlineStaysOneLine) {
  expect_error(run_program({"train", "/no\nsuch"}), 1, {"/no?such"});
}

TEST(Log, MustBeWritableAndNotTheText) {
  const TemporaryFile text("a text of more than seventeen bytes");
  const auto train = [&](const std::string& log) {
    return run_program({"train", text.path(), "--steps", "1", "--log", log});
  };
  expect_error(train("/nonexistent/log"), 1, {"--log", "/nonexistent/log"});
  expect_error(train("/tmp"), 1, {"--log", "/tmp"});
  expect_error(train(text.path()), 1, {"--log", text.path()});
  EXPECT_EQ(text.read(), "a text of more than seventeen bytes");

  const ProgramResult full = train("/dev/full");  // the header is out by then
  EXPECT_EQ(full.exit_code, 2);
  ASSERT_EQ(lines_of(full.err).size(), 1u);
  EXPECT_NE(full.err.find("/dev/full"), std::string::npos);
}

TEST(Stdout, FailingWriteIsAnError) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info"},
        {"info", "--json"},
        {"--help"},
        {"--version"},
        {"train", "--steps", "1"}}) {
    const ProgramResult result = run_program(arguments, {}, "/dev/full");
    EXPECT_EQ(result.exit_code, 2);
    ASSERT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_NE(result.err.find("stdout"), std::string::npos) << result.err;
  }
}

// As other tools: ended by SIGPIPE, without a word.
TEST(Stdout, APipeWithoutAReaderEndsQuietly) {
  const TemporaryFile text("a text of more than seventeen bytes");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info"},
        {"--help"},
        {"predict", "--list", "1000"},
        {"train", text.path(), "--steps", "2"}}) {
    std::vector<std::string> words = {"/bin/bash", "-c",
                                      "exec 3> >(:); wait $!; exec \"$@\" >&3",
                                      "bash", kProgram};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const ProgramResult result = run_command(words);
    EXPECT_EQ(result.exit_code, 128 + SIGPIPE) << arguments[0];
    EXPECT_EQ(result.err, "");
  }
}

}  // namespace
}  // namespace swamp::test
