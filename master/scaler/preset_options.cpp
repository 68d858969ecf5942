// Options by name, converted to the fields of a Scaler.
#include <cmath>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// read() returns the value of an option as a number.
double read(const Preset& preset, const Option& option,
            const ScalerValue& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    if (!std::isnan(option.none)) return option.none;
  } else if (const bool* truth = std::get_if<bool>(&value)) {
    if (option.kind == Kind::boolean) return *truth ? 1.0 : 0.0;
  } else if (option.kind != Kind::boolean) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return static_cast<double>(*integer);
    }
    if (const double* real = std::get_if<double>(&value)) return *real;
    // apex.amp's loss_scale="dynamic".
    const auto* text = std::get_if<std::string>(&value);
    if (text != nullptr && *text == "dynamic" &&
        option.member == &Scaler::constant_scale) {
      return 0.0;
    }
  }
  master::refuse(std::string(preset.name) + ": " + option.name,
                 python_text(value),
                 option.kind == Kind::boolean ? "true or false" : "a number");
}

// require_numbers() throws for an option that is nan, and for a first scale
// that is infinite, because all later ones would be the same. Many originals
// accept them; an original that refuses a number has refused it before, in its
// own words.
void require_numbers(const Preset& preset, const Scaler& scaler) {
  for (const Option& option : preset.options) {
    if (option.member == nullptr) continue;
    const double value = scaler.*option.member;
    const bool is_scale = option.member == &Scaler::initial_scale ||
                          option.member == &Scaler::constant_scale;
    if (is_scale ? std::isfinite(value) : !std::isnan(value)) continue;
    master::refuse(std::string(preset.name) + ": " + option.name,
                   python_text(value),
                   is_scale ? "a finite number" : "a number");
  }
}

}  // namespace

std::string python_text(const ScalerValue& value) {
  struct Printer {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(bool truth) const {
      return truth ? "True" : "False";
    }
    std::string operator()(std::int64_t integer) const {
      return std::to_string(integer);
    }
    std::string operator()(double real) const { return python_text(real); }
    std::string operator()(const std::string& text) const {
      return "'" + text + "'";
    }
    std::string operator()(const std::vector<std::int64_t>& list) const {
      std::string text = "[";
      for (const std::int64_t integer : list) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(integer);
      }
      return text + "]";
    }
  };
  return std::visit(Printer(), value);
}

std::string option_text(const ScalerOptions& options, const char* name,
                        double preset) {
  const auto given = options.find(name);
  return given == options.end() ? python_text(preset)
                                : python_text(given->second);
}

void require(bool good, const Scaler& scaler, const char* type,
             const std::string& message, const std::string& detail) {
  if (!good) raise(scaler, type, message, detail);
}

Scaler make_scaler(const Preset& preset, const ScalerOptions& options) {
  refuse_unknown(preset, options);
  Scaler scaler;
  scaler.name = preset.name;
  scaler.float_rule = preset.float_rule;
  scaler.guard = preset.guard;
  scaler.overflow_test = preset.overflow_test;
  for (const Option& option : preset.options) {
    if (option.member == nullptr) continue;  // prepare reads it
    const auto given = options.find(option.name);
    scaler.*option.member = given == options.end()
                                ? option.preset
                                : read(preset, option, given->second);
  }
  scaler.scale = scaler.initial_scale;
  round_scale(scaler);
  preset.prepare(options, scaler);
  require_numbers(preset, scaler);
  return scaler;
}

}  // namespace swamp::scaler
