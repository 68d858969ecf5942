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
  std::vector<Command> commands = {info_command(),    moe_report_command(),
                                   predict_command(), replay_command(),
                                   scan_command(),    train_command()};
  const Command* chosen = nullptr;
  try {
    const std::string answer = parse_command_line(argc, argv, commands, chosen);
    if (chosen == nullptr) {
      print(answer);
      return EXIT_SUCCESS;
    }
    // Every command makes a machine, so that a bad SWAMP_* value is an error of
    // every command, before any work.
    Machine machine;
    return chosen->run(*chosen, machine);
  } catch (const UsageError& error) {
    print_error(std::string("swamp: ") + error.what());
    print_error(chosen == nullptr
                    ? "Try 'swamp --help'."
                    : std::string("Try 'swamp ") + chosen->name + " --help'.");
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
