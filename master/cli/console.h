// Standard output and standard error of the program.
#ifndef SWAMP_MASTER_CLI_CONSOLE_H_
#define SWAMP_MASTER_CLI_CONSOLE_H_

#include <string>

namespace swamp::cli {

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

#endif  // SWAMP_MASTER_CLI_CONSOLE_H_
