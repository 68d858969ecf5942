// What all commands of the program share: how a command describes its options,
// and how it fails.
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
Command predict_command();
Command replay_command();
Command scan_command();
Command train_command();

// parse_command_line() sets the options of the command that the first word
// names, and points `chosen` to it; the result is then "". If the line only
// asks for a text, as --help does, it returns the text, and `chosen` stays
// null. Throws UsageError; `chosen` then says of which command, if of one.
std::string parse_command_line(int argc, char** argv,
                               std::vector<Command>& commands,
                               const Command*& chosen);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_COMMAND_H_
