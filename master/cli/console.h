// Standard output and standard error of the program.
#ifndef SWAMP_MASTER_CLI_CONSOLE_H_
#define SWAMP_MASTER_CLI_CONSOLE_H_

#include <string>

namespace swamp::cli {

// prepare_console() keeps a file that is opened later from becoming a stdout
// that was closed. A pipe without a reader ends the program by SIGPIPE,
// quietly, as it does other tools.
void prepare_console();

// print() writes to stdout and flushes; throws Failure where that fails.
void print(const std::string& text);

// print_error() writes one line to stderr, whatever is in `text`.
void print_error(const std::string& text);

// warn_of_unknown_variables() prints one line if the environment has SWAMP_*
// variables that are not swamp's.
void warn_of_unknown_variables();

// Progress is a line on stderr that overwrites itself; nothing where stderr is
// not a terminal.
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
