// Numbers as text that reads back to the same bits, whatever the locale.
#ifndef SWAMP_MASTER_MIXED_PRECISION_NUMBER_TEXT_H_
#define SWAMP_MASTER_MIXED_PRECISION_NUMBER_TEXT_H_

#include <locale.h>

#include <locale>
#include <sstream>
#include <string>

namespace swamp::master {

// ClassicLocale gives the calling thread the locale "C" as long as it lives:
// strtod(), snprintf() and nlohmann-json use the decimal point of the locale.
class ClassicLocale {
 public:
  ClassicLocale() noexcept
      : classic_(newlocale(LC_ALL_MASK, "C", nullptr)),
        before_(uselocale(classic_)) {}
  ~ClassicLocale() {
    uselocale(before_);
    freelocale(classic_);
  }
  ClassicLocale(const ClassicLocale&) = delete;
  ClassicLocale& operator=(const ClassicLocale&) = delete;

 private:
  locale_t classic_;
  locale_t before_;
};

// read_number() wants nothing behind the number.
inline bool read_number(const std::string& text, double& value) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  in >> value;
  return !in.fail() && in.peek() == std::istringstream::traits_type::eof();
}

// number_text() is the shortest of 6, 15 and 17 digits that reads back.
inline std::string number_text(double value) {
  std::string text;
  for (const int digits : {6, 15, 17}) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(digits);
    out << value;
    text = out.str();
    double back;
    if (read_number(text, back) && back == value) break;
  }
  return text;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_MIXED_PRECISION_NUMBER_TEXT_H_
