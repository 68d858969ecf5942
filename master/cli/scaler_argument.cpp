#include <fmt/format.h>

#include "master/cli/command.h"
#include "master/cli/train_arguments.h"
#include "swamp/error.h"

namespace swamp::cli {
namespace {

constexpr char kWord[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

// read_value() reads one JSON value, and nothing beside it.
bool read_value(const std::string& json, ScalerValue& value) {
  try {
    ScalerOptions read =
        scaler_options_from_json(fmt::format("{{\"value\":{}}}", json));
    if (read.size() != 1) return false;
    value = read.at("value");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ScalerValue parse_scaler_option(const std::string& text, std::string& key) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && equals != 0) {
    key = text.substr(0, equals);
    const std::string given = text.substr(equals + 1);
    ScalerValue value;
    if (read_value(given, value)) return value;
    // Words, inf and nan are strings in JSON.
    const bool word =
        !given.empty() && given.find_first_not_of(kWord) == std::string::npos;
    if (word && read_value(fmt::format("\"{}\"", given), value)) return value;
  }
  throw UsageError(fmt::format(
      "--scaler-option: got '{}', expected KEY=VALUE with a number, true, "
      "false, null, a word or a list of integers as [20,40]",
      text));
}

}  // namespace swamp::cli
