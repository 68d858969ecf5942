#include "master/cli/number.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

bool contains_only(const std::string& text, const char* characters) {
  return !text.empty() &&
         text.find_first_not_of(characters) == std::string::npos;
}

}  // namespace

std::uint64_t parse_integer(const std::string& option, const std::string& text,
                            std::uint64_t low, std::uint64_t high) {
  // strtoull() alone would take " -1" for 2^64 - 1.
  if (contains_only(text, "0123456789")) {
    errno = 0;
    const std::uint64_t value = std::strtoull(text.c_str(), nullptr, 10);
    if (errno == 0 && value >= low && value <= high) return value;
  }
  throw UsageError(fmt::format("{}: got '{}', expected an integer, {} to {}",
                               option, text, low, high));
}

double parse_real(const std::string& option, const std::string& text,
                  double low, double high) {
  // No inf, nan, hexadecimal or white space, which strtod() would take.
  if (contains_only(text, "0123456789.eE+-")) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end == '\0' && value >= low && value <= high) return value;
  }
  throw UsageError(fmt::format("{}: got '{}', expected a number, {} to {}",
                               option, text, low, high));
}

}  // namespace swamp::cli
