// The program swamp: one command per run. An error is one line on stderr, and
// one more that points at --help if that helps; the exit code is then 2.
#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "master/cli/command.h"
#include "swamp/c_api.h"

namespace swamp::cli {
namespace {

void print_report(void* /*user*/, const char* text) { print_error(text); }

int run(int argc, char** argv) {
  std::string command;
  try {
    std::string answer;
    const Run run_command = parse_command_line(argc, argv, command, answer);
    if (!run_command) {
      print(answer);
      return EXIT_SUCCESS;
    }
    // Every command makes a machine, so that a bad SWAMP_* value is an error of
    // every command, before any work.
    Machine machine;
    return run_command(machine);
  } catch (const UsageError& error) {
    print_error(std::string("swamp: ") + error.what());
    print_error(command.empty() ? "Try 'swamp --help'."
                                : "Try 'swamp " + command + " --help'.");
  } catch (const std::bad_alloc&) {
    print_error("swamp: out of memory");
  } catch (const std::exception& error) {
    print_error(std::string("swamp: ") + error.what());
  }
  return kExitFailure;
}

}  // namespace
}  // namespace swamp::cli

int main(int argc, char** argv) {
  using namespace swamp::cli;
  prepare_console();
  swamp_check_set_callback(print_report, nullptr);
  const int exit_code = run(argc, argv);
  if (exit_code != EXIT_SUCCESS) return exit_code;
  return swamp_check_report_count() > 0 ? kExitReports : EXIT_SUCCESS;
}
