// An error ends with exit code 2 and one line on stderr that names the cause; a
// usage error has one more, which points at --help. All output fits a terminal.
#include "support/errors.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

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

// Every row of errors.txt: arguments => words of the message, with bars between
// them. A line that points at --help follows, unless the row begins with "!".
TEST(Usage, ErrorsNameTheCause) {
  std::size_t rows = 0;
  for (std::string row : lines_of(read_file(SWAMP_ERRORS))) {
    if (row.empty() || row[0] == '#') continue;
    SCOPED_TRACE(row);
    const Hint hint = row[0] == '!' ? Hint::none : Hint::help;
    if (hint == Hint::none) row.erase(0, 1);
    const std::size_t arrow = row.find("=> ");
    ASSERT_NE(arrow, std::string::npos);
    std::vector<std::string> parts;
    std::istringstream words(row.substr(arrow + 3));
    for (std::string part; std::getline(words, part, '|');) {
      parts.push_back(part);
    }
    expect_error(run_program(row.substr(0, arrow).c_str()), parts, hint);
    ++rows;
  }
  EXPECT_GT(rows, 100u);
  // With a blank in a word.
  expect_error(run_program({"train", "--lr", "1e-3 "}), {"--lr", "'1e-3 '"},
               Hint::help);
  for (const char* option : {"init_scale=two words", "init_scale=1,\"a\":2"}) {
    expect_error(run_program({"train", "--scaler", "torch.amp.GradScaler",
                              "--scaler-option", option}),
                 {"KEY=VALUE"}, Hint::help);
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
