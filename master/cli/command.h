// What all commands of the program share: how a command describes its options,
// how it fails, and what it prints.
#ifndef SWAMP_MASTER_CLI_COMMAND_H_
#define SWAMP_MASTER_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "master/cli/text.h"
#include "swamp/machine.h"

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

// Option is one option of a command. If its name does not begin with "-", it
// is a word without a name, or several.
struct Option {
  std::string name;
  std::string type;     // shown after the name; "" for a flag
  std::string initial;  // the default value that --help shows
  std::string help;
  std::function<void(const std::string&)> take;  // called for each value
  bool* flag = nullptr;   // set by an option without a value
  bool repeated = false;  // takes any number of values
  bool required = false;
  bool given = false;  // set by parse_command_line()
};

// Command is one command of the program, with its options. The variables that
// its options set must live as long as the command.
struct Command {
  const char* name;
  const char* help;
  std::string footer = {};  // of --help
  std::vector<Option> options = {};
  // Does the work after the options were set; returns the exit code.
  std::function<int(const Command&, Machine&)> run = {};

  bool is_given(const std::string& option) const;

  // Each adds an option. Values are checked by swamp's own parsers, so that all
  // messages have one form. The result is valid until the next option is added.
  Option& flag(const char* option, bool& value, const char* text);
  Option& words(const char* option, std::vector<std::string>& values,
                const char* text);
  Option& text(const char* option, const char* type, std::string initial,
               std::string text, std::function<void(const std::string&)> take);
  Option& real(const char* option, double& value, double low, double high,
               const char* text);
  template <typename Integer>
  Option& integer(const char* option, Integer& value, std::uint64_t low,
                  std::uint64_t high, const char* help_text) {
    return text(
        option, "N", std::to_string(value), help_text,
        [=, &value](const std::string& given) {
          value = static_cast<Integer>(parse_integer(option, given, low, high));
        });
  }
};

Command info_command();
Command moe_report_command();
Command predict_command();
Command replay_command();
Command scan_command();
Command train_command();

// parse_command_line() sets the options of the command that the first word
// names, and points `chosen` to it; the result is then "". For --help
// and --version it returns the text to print, and `chosen` stays null. Throws
// UsageError; `chosen` is then the command that it is about, or null.
std::string parse_command_line(int argc, char** argv,
                               std::vector<Command>& commands,
                               const Command*& chosen);

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
