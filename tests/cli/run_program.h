#ifndef SWAMP_TESTS_CLI_RUN_PROGRAM_H_
#define SWAMP_TESTS_CLI_RUN_PROGRAM_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace swamp::test {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Words are the arguments of a program: a line that is split at its spaces, or
// a list. The word '' is empty.
struct Words : std::vector<std::string> {
  Words(const char* line);
  Words(std::initializer_list<std::string> list) : vector(list) {}
  Words(const std::vector<std::string>& list) : vector(list) {}
};
inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct ProgramResult {
  int exit_code = -1;  // 128 + signal if it was killed
  std::string out;
  std::string err;
};

// run_program() runs the built `swamp` and waits for it, without the SWAMP_*
// variables of this process. With `out_path`, stdout goes there.
ProgramResult run_program(const Words& arguments,
                          const Environment& environment = {},
                          const std::string& out_path = "");

// output_of() runs the built `swamp`, expects exit code 0 and nothing on
// stderr, and returns stdout.
std::string output_of(const Words& arguments,
                      const Environment& environment = {});

// run_command() does so with any program, whose path is the first word. A
// program that still runs after `kill_after_ms` milliseconds is killed
// (SIGKILL), never if that is negative. When `interrupt_if` first returns true,
// it is sent SIGINT; while that is called, it is stopped.
ProgramResult run_command(const Words& words,
                          const Environment& environment = {},
                          const std::string& out_path = "",
                          int kill_after_ms = -1,
                          std::function<bool()> interrupt_if = {});

// Hint tells whether an error has a second line, "Try 'swamp ... --help'.".
enum class Hint { none, help };

// expect_error() checks a run that must fail before it prints anything: exit
// code 2 and one line on stderr, "swamp: ...", that contains all of `parts`.
void expect_error(const ProgramResult& result,
                  const std::vector<std::string>& parts,
                  Hint hint = Hint::none);
// expect_late_error() does so for a run that has printed something.
void expect_late_error(const ProgramResult& result,
                       const std::vector<std::string>& parts,
                       Hint hint = Hint::none);

// kProgram is the path of the built `swamp`.
extern const char* const kProgram;

std::string read_file(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

// kShortText is a file that `swamp train` accepts as its text.
inline constexpr char kShortText[] = "a text of more than seventeen bytes";

// test_name() makes `text` the name of a parameterised test: it replaces the
// characters that such a name must not have by "_".
std::string test_name(std::string text);

// TemporaryFile is a path in a folder of its own, removed at the end.
class TemporaryFile {
 public:
  TemporaryFile();
  explicit TemporaryFile(const std::string& content);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string read() const;

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_CLI_RUN_PROGRAM_H_
