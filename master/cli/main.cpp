// The program swamp: one command a run. An error is one line on stderr, and one
// more that points at --help where that helps; the exit code is then 2.
#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "master/cli/command_line.h"
#include "master/cli/console.h"

namespace swamp::cli {
namespace {

void print_report(void* /*user*/, const char* text) { print_error(text); }

// Runner makes the machine before any work: a bad SWAMP_* value is an error of
// every command. An unknown name is a warning of every command; that of train
// is its first rank's.
struct Runner {
  int operator()(const Answer& answer) const {
    print(answer.text);
    return EXIT_SUCCESS;
  }

  int operator()(const InfoOptions& options) const {
    Machine machine;
    warn_of_unknown_variables();
    run_info(options, machine);
    return EXIT_SUCCESS;
  }

  int operator()(const PredictOptions& options) const {
    const Machine machine;
    warn_of_unknown_variables();
    run_predict(options);
    return EXIT_SUCCESS;
  }

  int operator()(const ReplayOptions& options) const {
    const Machine machine;
    warn_of_unknown_variables();
    return run_replay(options);
  }

  int operator()(const ScanOptions& options) const {
    Machine machine;
    warn_of_unknown_variables();
    return run_scan(options, machine);
  }

  int operator()(const TrainOptions& options) const {
    Machine machine;
    run_train(options, machine);
    return EXIT_SUCCESS;
  }
};

int run(int argc, char** argv) {
  try {
    return std::visit(Runner(), parse_command_line(argc, argv));
  } catch (const UsageError& error) {
    print_error(std::string("swamp: ") + error.what());
    const std::string& command = error.command();
    print_error("Try 'swamp " + command + (command.empty() ? "" : " ") +
                "--help'.");
    throw;
  } catch (const std::bad_alloc&) {
    print_error("swamp: out of memory");
    throw;
  } catch (const std::exception& error) {
    print_error(std::string("swamp: ") + error.what());
    throw;
  }
}

}  // namespace
}  // namespace swamp::cli

int main(int argc, char** argv) {
  using namespace swamp::cli;
  prepare_console();
  swamp_check_set_callback(print_report, nullptr);
  int exit_code = kExitFailure;
  try {
    exit_code = run(argc, argv);
  } catch (...) {
    return kExitFailure;
  }
  if (exit_code != EXIT_SUCCESS) return exit_code;
  return swamp_check_report_count() > 0 ? kExitReports : EXIT_SUCCESS;
}
