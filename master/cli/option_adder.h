// CLI11 is slow to compile: who includes this is a file of its own.
#ifndef SWAMP_MASTER_CLI_OPTION_ADDER_H_
#define SWAMP_MASTER_CLI_OPTION_ADDER_H_

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "master/cli/number.h"

namespace swamp::cli {

// OptionAdder adds options to one command. Their values go through our own
// parsers, so that their messages say what was expected.
class OptionAdder {
 public:
  explicit OptionAdder(CLI::App* command) : command_(command) {}

  CLI::Option* flag(const char* name, bool& value, const char* help) {
    return command_->add_flag(name, value, help);
  }

  CLI::Option* text(const char* name, const char* type, std::string shown,
                    const char* help,
                    std::function<void(const std::string&)> take) {
    return command_
        ->add_option_function<std::string>(name, std::move(take), help)
        ->type_name(type)
        ->default_str(std::move(shown));
  }

  template <typename Integer>
  CLI::Option* integer(const char* name, Integer& value, std::uint64_t low,
                       std::uint64_t high, const char* help) {
    return text(
        name, "N", fmt::to_string(value), help,
        [=, &value](const std::string& given) {
          value = static_cast<Integer>(parse_integer(name, given, low, high));
        });
  }

  CLI::Option* real(const char* name, double& value, double low, double high,
                    const char* help) {
    return text(name, "X", shown(value), help,
                [=, &value](const std::string& given) {
                  value = parse_real(name, given, low, high);
                });
  }

 private:
  // shown() has no exponent where the number is whole.
  static std::string shown(double value) {
    return value >= 1 && value < 1e15 ? fmt::format("{:.15g}", value)
                                      : fmt::to_string(value);
  }

  CLI::App* command_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_OPTION_ADDER_H_
