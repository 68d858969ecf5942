#include "master/cli/replay/code_fields.h"

#include <fmt/core.h>

#include <fstream>

#include "master/cli/command.h"
#include "master/cli/text.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kMaxSize = 8192;  // rows or columns of a matrix

std::size_t digits_of(ScalarType type) { return 2 * kFloatFormats[type].bytes; }

CodeInput read_input(const Json& record) {
  CodeInput input{size_field(record, "rows"),
                  size_field(record, "cols"),
                  record.contains("f32") ? kFloat32 : kBFloat16,
                  {},
                  {}};
  const char* name = input.type == kFloat32 ? "f32" : "bf16";
  const Words words = words_field(record, name, input.type);
  if (words.size() != input.rows * input.columns) {
    throw Failure(fmt::format("{}: got {} numbers, expected {} x {}", name,
                              words.size(), input.rows, input.columns));
  }
  for (const std::uint32_t word : words) {
    if (input.type == kFloat32) {
      input.wide.push_back(float_from_bits(word));
    } else {
      input.narrow.push_back(static_cast<std::uint16_t>(word));
    }
  }
  return input;
}

}  // namespace

std::size_t size_field(const Json& record, const char* name) {
  const Json& value = json_member(record, name);
  if (!value.is_number_unsigned() || value > kMaxSize) {
    refuse_json(name, value, fmt::format("an integer, at most {}", kMaxSize));
  }
  return value;
}

ScalarType format_field(const Json& record, const char* name) {
  const std::string text = json_text(record, name);
  for (const FloatFormat& format : kFloatFormats) {
    if (format.bytes != 1) continue;
    // Also without the width and the special values: e4m3, int8.
    const unsigned exponent_bits = format.width - 1 - format.mantissa_bits;
    if (text == format.name ||
        text == fmt::format("e{}m{}", exponent_bits, format.mantissa_bits) ||
        (text == "int8" && format.type == kMxInt8)) {
      return format.type;
    }
  }
  refuse_json(name, record[name], "a format of at most 8 bits");
}

Words words_field(const Json& record, const char* name, ScalarType type) {
  const std::size_t digits = digits_of(type);
  const Json& value = json_member(record, name);
  std::string text;
  if (type == kFloat32 && value.is_array()) {
    for (const Json& one : value) {
      if (!one.is_string()) refuse_json(name, value, "texts");
      text += one.get<std::string>();
    }
  } else {
    text = json_text(record, name);
  }
  if (text.size() % digits != 0 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse_json(name, value,
                fmt::format("hexadecimal numbers of {} digits", digits));
  }
  Words words;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    words.push_back(static_cast<std::uint32_t>(
        std::stoul(text.substr(i, digits), nullptr, 16)));
  }
  return words;
}

std::string hex(std::uint32_t word, ScalarType type) {
  return fmt::format("{:0{}x}", word, digits_of(type));
}

std::string number_text(std::uint32_t word, ScalarType type) {
  const auto code = static_cast<std::uint8_t>(word);
  if (type == kFloat4E2M1FNX2) {
    return fmt::format("{} ({}, {})", hex(word, type),
                       code_to_float(type, code),
                       code_to_float(type, code >> 4));
  }
  return fmt::format("{} ({})", hex(word, type),
                     type == kFloat32    ? float_from_bits(word)
                     : type == kBFloat16 ? float_from_bits(word << 16)
                                         : code_to_float(type, code));
}

Matrix CodeInput::matrix() const {
  return {tensor().data, rows, columns, type};
}

Tensor CodeInput::tensor() const {
  return {type == kFloat32 ? static_cast<void*>(const_cast<float*>(wide.data()))
                           : const_cast<std::uint16_t*>(narrow.data()),
          rows * columns, type};
}

std::uint32_t CodeInput::bits(std::size_t element) const {
  return type == kFloat32 ? float_to_bits(wide[element]) : narrow[element];
}

const CodeInput& CodeInputs::of(const Json& record) {
  const Json& input = json_member(record, "input");
  if (input.is_object()) return own_ = read_input(input);
  const std::string name = json_text(record, "input");
  if (named_.empty()) {
    std::ifstream file(path_);
    try {
      for (std::string line; std::getline(file, line);) {
        const Json one = parse_json(line, kMaxRecordDepth);
        named_[json_text(one, "name")] = read_input(one);
      }
    } catch (const Failure& failure) {
      throw Failure(fmt::format("{}: {}", path_, failure.what()));
    }
  }
  const auto found = named_.find(name);
  if (found == named_.end()) {
    throw Failure(
        fmt::format("input: got {}, expected a matrix or a name of {}",
                    in_quotes(name), path_));
  }
  return found->second;
}

}  // namespace swamp::cli
