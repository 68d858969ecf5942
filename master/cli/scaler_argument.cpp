#include <fmt/format.h>

#include "master/cli/command.h"
#include "master/cli/train_arguments.h"
#include "swamp/error.h"

namespace swamp::cli {
namespace {

bool contains_only(const std::string& text, const char* characters) {
  return !text.empty() &&
         text.find_first_not_of(characters) == std::string::npos;
}

}  // namespace

ScalerValue parse_scaler_option(const std::string& text, std::string& key) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && equals != 0) {
    key = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    // A word, inf and nan are strings in JSON.
    for (const char* form : {"{{\"value\":{}}}", "{{\"value\":\"{}\"}}"}) {
      if (form[11] == '"' &&
          !contains_only(value,
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789_-.")) {
        break;
      }
      try {
        ScalerOptions read =
            scaler_options_from_json(fmt::format(fmt::runtime(form), value));
        if (read.size() == 1) return read.at("value");
      } catch (const Error&) {
        continue;  // perhaps a word
      }
    }
  }
  throw UsageError(fmt::format(
      "--scaler-option: got '{}', expected KEY=VALUE with a number, true, "
      "false, null, a word or a list of integers as [20,40]",
      text));
}

}  // namespace swamp::cli
