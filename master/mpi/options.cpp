#include "master/mpi/options.h"

#include <climits>
#include <cstdlib>
#include <string>

namespace swamp::mpi {
namespace {

constexpr const char* kTimeout = "SWAMP_MPI_TIMEOUT";
constexpr int kDefaultTimeout = 300;
// A piece below this goes with its header.
constexpr std::size_t kMinMessage = 64;
constexpr std::size_t kMaxEcho = 100;

// An empty variable counts as unset, as every SWAMP_* of the machine.
int environment_timeout() {
  const char* value = std::getenv(kTimeout);
  const std::string text = value == nullptr ? "" : value;
  if (text.empty()) return kDefaultTimeout;
  if (text.size() > 9 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                std::string(kTimeout) + ": \"" + text.substr(0, kMaxEcho) +
                    "\" is out of range; expected a whole number of seconds "
                    "from 0 (no limit) to 999999999");
  }
  return std::stoi(text);
}

}  // namespace

MpiOptions checked(const MpiOptions& options) {
  if (options.message_bytes < kMinMessage || options.message_bytes > INT_MAX) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "MpiCommunicator: options.message_bytes is " +
                    std::to_string(options.message_bytes) + "; expected from " +
                    std::to_string(kMinMessage) + " to " +
                    std::to_string(INT_MAX));
  }
  MpiOptions checked = options;
  // The variable is read in any case: a bad value is an error everywhere.
  const int timeout = environment_timeout();
  if (checked.timeout_seconds < 0) checked.timeout_seconds = timeout;
  return checked;
}

}  // namespace swamp::mpi
