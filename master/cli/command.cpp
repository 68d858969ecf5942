#include "master/cli/command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/variables.h"

namespace swamp::cli {
void prepare_console() {
  // Read-only: a write to a stdout that was closed must still fail.
  int descriptor = open("/dev/null", O_RDONLY);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) {
    descriptor = open("/dev/null", O_RDONLY);
  }
  if (descriptor >= 0) close(descriptor);
}

void print(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    throw Failure(
        fmt::format("cannot write to stdout: {}", std::strerror(errno)));
  }
}

void print_error(const std::string& text) {
  const std::string line = printable(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn_of_unknown_variables() {
  const std::string warning = runtime::unknown_variables_warning();
  if (!warning.empty()) print_error(warning);
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  const std::string line = "\r" + text.substr(0, kColumns - 1) + "\033[K";
  std::fwrite(line.data(), 1, line.size(), stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace swamp::cli
