// The commands of the program, and how they fail.
#ifndef SWAMP_MASTER_CLI_COMMAND_H_
#define SWAMP_MASTER_CLI_COMMAND_H_

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "master/cli/predict_options.h"
#include "master/cli/train_options.h"
#include "swamp/swamp.h"

namespace swamp::cli {

// kExitFound is what a scan that found inf or nan ends with, and a replay that
// found a difference.
inline constexpr int kExitFound = 1;
inline constexpr int kExitFailure = 2;
// kExitReports is what a run ends with where it would have ended with 0, had
// the checking emulation found nothing.
inline constexpr int kExitReports = 86;

// Failure is a fault of the user or of the system: what() is one line.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// UsageError is a Failure that `swamp COMMAND --help` would have prevented.
class UsageError : public Failure {
 public:
  explicit UsageError(const std::string& text, std::string command = "")
      : Failure(text), command_(std::move(command)) {}

  const std::string& command() const noexcept { return command_; }

 private:
  std::string command_;
};

struct InfoOptions {
  bool json = false;
};

struct ReplayOptions {
  std::vector<std::string> files;
  bool check = false;
};

struct ScanOptions {
  std::vector<std::string> files;  // and folders
  bool all = false;
  bool json = false;
  bool recursive = false;
};

void run_info(const InfoOptions& options, Machine& machine);
void run_predict(const PredictOptions& options);
// run_replay() returns the exit code: kExitFound where --check fails.
int run_replay(const ReplayOptions& options);
// run_scan() returns the exit code: several files may fail and the others not.
int run_scan(const ScanOptions& options, Machine& machine);
void run_train(const TrainOptions& options, Machine& machine);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_COMMAND_H_
