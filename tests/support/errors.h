// How tests expect an error.
#ifndef SWAMP_TESTS_SUPPORT_ERRORS_H_
#define SWAMP_TESTS_SUPPORT_ERRORS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "swamp/error.h"

namespace swamp::test {

// error_text() expects an error of one line with this status, and returns its
// text.
std::string error_text(const Error& error, swamp_status status);

// error_of() returns the text of the swamp::Error that `call` throws; it
// expects the status too.
template <class Call>
std::string error_of(Call&& call,
                     swamp_status status = SWAMP_INVALID_ARGUMENT) {
  try {
    call();
  } catch (const Error& error) {
    return error_text(error, status);
  }
  return "nothing was thrown";
}

// has_words() returns whether `text` contains each of `words`.
testing::AssertionResult has_words(const std::string& text,
                                   const std::vector<std::string>& words);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_ERRORS_H_
