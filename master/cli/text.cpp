#include "master/cli/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

bool contains_only(const std::string& text, const char* characters) {
  return !text.empty() &&
         text.find_first_not_of(characters) == std::string::npos;
}

// fill() puts words into lines, `gap` between two of a line.
std::string fill(const std::vector<std::string>& words, const char* gap,
                 std::size_t columns, std::size_t indent) {
  const std::size_t gap_width = std::string_view(gap).size();
  std::string text;
  std::size_t width = 0;
  bool first = true;
  for (const std::string& word : words) {
    if (first) {
      width = word.size();
    } else if (width + gap_width + word.size() <= columns) {
      text += gap;
      width += gap_width + word.size();
    } else {
      text += "\n" + std::string(indent, ' ');
      width = indent + word.size();
    }
    first = false;
    text += word;
  }
  return text;
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

ScalarType parse_dtype(const std::string& option, const std::string& name,
                       std::initializer_list<ScalarType> allowed) {
  std::vector<std::string> names;
  for (const ScalarType dtype : allowed) {
    if (name == dtype_name(dtype)) return dtype;
    names.emplace_back(dtype_name(dtype));
  }
  throw UsageError(fmt::format("{}: got '{}', expected one of {}", option, name,
                               joined(names)));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return items;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += ", ";
    all += text;
  }
  return all;
}

std::string printable(std::string text) {
  for (char& character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) character = '?';
  }
  return text;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShown = 200;
  const std::string shown = printable(std::string(text.substr(0, kMaxShown)));
  if (shown.size() == text.size()) return fmt::format("'{}'", shown);
  return fmt::format("'{}...' ({} bytes)", shown, text.size());
}

std::string wrapped(const std::string& text, std::size_t columns,
                    std::size_t indent) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return fill(words, " ", columns, indent);
}

std::string wrapped_fields(const std::vector<std::string>& fields,
                           std::size_t indent) {
  return fill(fields, "  ", kColumns, indent);
}

}  // namespace swamp::cli
