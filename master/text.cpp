#include "master/text.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <sstream>

namespace swamp::master {
namespace {

// Formats with a conversion that takes a precision. Needs ClassicLocale.
std::string format(const char* conversion, int precision, double value) {
  char text[64];
  std::snprintf(text, sizeof text, conversion, precision, value);
  return text;
}

bool reads_back(const std::string& text, double value) {
  return std::strtod(text.c_str(), nullptr) == value;
}

}  // namespace

bool read_number(const std::string& text, double& value) {
  // Not strtod(), which takes inf, nan and hexadecimal numbers.
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  in >> value;
  return !in.fail() && in.peek() == std::istringstream::traits_type::eof();
}

bool read_special_number(const std::string& text, double& value) {
  const ClassicLocale scope;
  if (text == "inf" || text == "-inf" || text == "nan") {
    value = std::strtod(text.c_str(), nullptr);
    return true;
  }
  const std::size_t digits = text.compare(0, 1, "-") == 0 ? 1 : 0;
  if (text.compare(digits, 2, "0x") != 0) return false;
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

std::string number_text(double value) {
  const ClassicLocale scope;
  for (const int digits : {6, 15}) {
    const std::string text = format("%.*g", digits, value);
    if (reads_back(text, value)) return text;
  }
  return format("%.*g", 17, value);
}

std::string python_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const ClassicLocale scope;
  std::string text;  // the fewest digits that read back, as d.ddde+xx
  for (int digits = 0; digits <= 16; ++digits) {
    text = format("%.*e", digits, value);
    if (reads_back(text, value)) break;
  }
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const std::size_t digits = e - (value < 0 ? 1 : 0) - (e > 2 ? 1 : 0);
  int decimals = static_cast<int>(digits) - 1 - exponent;
  if (decimals < 1) decimals = 1;
  return format("%.*f", decimals, value);
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += ", ";
    all += text;
  }
  return all;
}

}  // namespace swamp::master
