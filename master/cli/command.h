// What all commands of the program share: their options, how they fail, and
// what they print.
#ifndef SWAMP_MASTER_CLI_COMMAND_H_
#define SWAMP_MASTER_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "master/cli/text.h"
#include "swamp/machine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace swamp::cli {

// kExitFound is the exit code of a scan that found inf or nan, and of a replay
// that found a difference.
inline constexpr int kExitFound = 1;
inline constexpr int kExitFailure = 2;
// kExitReports replaces exit code 0 if the checking emulation reported bugs.
inline constexpr int kExitReports = 86;

// Failure is an error of the user or of the system; what() is one line.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// UsageError is a Failure that `swamp COMMAND --help` would have prevented.
class UsageError : public Failure {
 public:
  using Failure::Failure;
};

// Run does the work of a command after its options were set, and returns the
// exit code.
using Run = std::function<int(Machine&)>;

// Each adds the options of a command, which must outlive the result.
Run add_info(CLI::App& command);
Run add_predict(CLI::App& command);
Run add_replay(CLI::App& command);
Run add_scan(CLI::App& command);
Run add_train(CLI::App& command);

// Options whose values swamp's own parsers check, so that all messages have one
// form. `initial` is the default value that --help shows.
CLI::Option* add_text(CLI::App& command, const char* option, const char* type,
                      const std::string& initial, const std::string& help,
                      std::function<void(const std::string&)> take);
CLI::Option* add_real(CLI::App& command, const char* option, double& value,
                      double low, double high, const char* help);
template <typename Integer>
CLI::Option* add_integer(CLI::App& command, const char* option, Integer& value,
                         std::uint64_t low, std::uint64_t high,
                         const char* help) {
  return add_text(
      command, option, "N", std::to_string(value), help,
      [=, &value](const std::string& given) {
        value = static_cast<Integer>(parse_integer(option, given, low, high));
      });
}

// parse_command_line() returns what runs the command that the first word names.
// For --help and --version it returns nothing, and `answer` is the text to
// print. Throws UsageError; `command` is the command that it is about, or "".
Run parse_command_line(int argc, char** argv, std::string& command,
                       std::string& answer);

// prepare_console() opens standard streams that are closed, so that no file
// that is opened later takes their place. If stdout is a pipe without a reader,
// SIGPIPE ends the program without a message, as it ends other tools.
void prepare_console();

// print() writes to stdout and flushes; throws Failure if that fails.
void print(const std::string& text);

// print_error() writes `text` to stderr as one line, without control
// characters.
void print_error(const std::string& text);

// warn_of_unknown_variables() prints one line if the environment has SWAMP_*
// variables that are not swamp's.
void warn_of_unknown_variables();

// Progress is a line on stderr that overwrites itself. It prints nothing if
// stderr is not a terminal.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_COMMAND_H_
