#include "master/cli/command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/variables.h"

namespace swamp::cli {
namespace {

// A whole number is shown without an exponent.
std::string real_text(double value) {
  return value >= 1 && value < 1e15 ? fmt::format("{:.15g}", value)
                                    : fmt::format("{}", value);
}

}  // namespace

bool Command::is_given(const std::string& option) const {
  return std::any_of(options.begin(), options.end(), [&](const Option& one) {
    return one.name == option && one.given;
  });
}

Option& Command::flag(const char* option, bool& value, const char* text) {
  Option added;
  added.name = option;
  added.help = text;
  added.flag = &value;
  return options.emplace_back(std::move(added));
}

Option& Command::words(const char* option, std::vector<std::string>& values,
                       const char* text) {
  Option& added = this->text(
      option, "", "", text,
      [&values](const std::string& given) { values.push_back(given); });
  added.repeated = true;
  return added;
}

Option& Command::text(const char* option, const char* type, std::string initial,
                      std::string text,
                      std::function<void(const std::string&)> take) {
  Option added;
  added.name = option;
  added.type = type;
  added.initial = std::move(initial);
  added.help = std::move(text);
  added.take = std::move(take);
  return options.emplace_back(std::move(added));
}

Option& Command::real(const char* option, double& value, double low,
                      double high, const char* text) {
  return this->text(option, "X", real_text(value), text,
                    [=, &value](const std::string& given) {
                      value = parse_real(option, given, low, high);
                    });
}

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
