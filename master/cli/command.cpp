#include "master/cli/command.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

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

}  // namespace swamp::cli
