// Text of libswamp: numbers, whatever the program's locale, and errors.
#ifndef SWAMP_MASTER_TEXT_H_
#define SWAMP_MASTER_TEXT_H_

#include <locale.h>

#include <string>
#include <vector>

#include "swamp/error.h"

namespace swamp::master {

// Gives the calling thread the locale "C" for its lifetime: strtod(),
// snprintf() and nlohmann-json use the decimal point of the locale.
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

// Reads a decimal number. Returns false if the text is anything else.
bool read_number(const std::string& text, double& value);

// Reads numbers other than decimal ones: inf, -inf, nan or a hexadecimal number
// (0x1p+4). Returns false if the text is anything else.
bool read_special_number(const std::string& text, double& value);

// Returns the shortest text of 6, 15 and 17 digits that reads back.
std::string number_text(double value);

// Formats a number as Python's repr() does: 0.5, 4.0, 1e-05, inf.
std::string python_text(double value);

// Returns the texts with commas between them.
std::string joined(const std::vector<std::string>& texts);

// Throws Error "NAME: got VALUE, expected WHAT". Inline, because swamp_mpi uses
// it too.
[[noreturn]] inline void refuse(const std::string& name,
                                const std::string& value,
                                const std::string& expected,
                                swamp_status status = SWAMP_INVALID_ARGUMENT) {
  throw Error(status, name + ": got " + value + ", expected " + expected);
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_TEXT_H_
