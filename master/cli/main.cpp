// The program swamp: one command per run. An error is one line on stderr, and
// one more that points at --help if that helps; the exit code is then 2.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "master/cli/command.h"
#include "swamp/c_api.h"
#include "swamp/communicator.h"

namespace swamp::cli {
namespace {

// Threads of libgomp spin for 3 ms before they sleep; on a busy host that takes
// 20 times the processor time. libgomp reads its variables when it is loaded,
// before main(). Only functions of the section .preinit_array run earlier, and
// at that time the environment cannot grow, so limit_spinning() exchanges one
// entry of it, which main() restores: neither the program nor its children see
// the difference. Variables of the user take precedence.
char spin_count[] = "GOMP_SPINCOUNT=1000";  // 10 us
char* exchanged = nullptr;

// Instrumented code and the functions of the C library cannot run yet.
__attribute__((no_sanitize("address", "thread", "undefined"))) bool begins_with(
    const char* text, const char* start) {
  while (*start != '\0' && *text == *start) ++text, ++start;
  return *start == '\0';
}

__attribute__((no_sanitize("address", "thread", "undefined"))) void
limit_spinning(int /*argc*/, char** /*argv*/, char** environment) {
  char** last = nullptr;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (begins_with(*entry, "GOMP_SPINCOUNT=") ||
        begins_with(*entry, "OMP_WAIT_POLICY=")) {
      return;
    }
    if (!begins_with(*entry, "OMP_") && !begins_with(*entry, "GOMP_")) {
      last = entry;
    }
  }
  if (last == nullptr) return;
  exchanged = *last;
  *last = spin_count;
}

__attribute__((section(".preinit_array"),
               used)) void (*const kLimitSpinning)(int, char**,
                                                   char**) = limit_spinning;

// A library may have copied the environment meanwhile.
void restore_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (*entry == spin_count) *entry = exchanged;
  }
}

void print_report(void* /*user*/, const char* text) { print_error(text); }

int run(int argc, char** argv) {
  std::string command;
  try {
    std::string answer;
    const Run run_command = parse_command_line(argc, argv, command, answer);
    if (!run_command) {
      print(answer);
      if (launched_ranks() == 1) return EXIT_SUCCESS;
      // The others may train: without an error they would wait for this one.
      throw Failure("got " + std::to_string(launched_ranks()) +
                    " ranks of mpirun and a request for help, expected one "
                    "process");
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
  restore_environment();
  prepare_console();
  swamp_check_set_callback(print_report, nullptr);
  const int exit_code = run(argc, argv);
  if (exit_code != EXIT_SUCCESS) return exit_code;
  return swamp_check_report_count() > 0 ? kExitReports : EXIT_SUCCESS;
}
