// How tests expect an error.
#ifndef SWAMP_TESTS_SUPPORT_ERRORS_H_
#define SWAMP_TESTS_SUPPORT_ERRORS_H_

#include <gtest/gtest.h>

#include <functional>
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

// expect_refused() expects that `call` throws a swamp::Error with this status,
// whose text contains each of `words`.
template <class Call>
void expect_refused(Call&& call, const std::vector<std::string>& words,
                    swamp_status status = SWAMP_INVALID_ARGUMENT) {
  EXPECT_TRUE(has_words(error_of(call, status), words));
}

// RefusedCall is a row of a table of errors.
struct RefusedCall {
  std::function<void()> call;
  const char* text;
  swamp_status status = SWAMP_INVALID_ARGUMENT;
};
inline void expect_refused(const std::vector<RefusedCall>& rows) {
  for (const RefusedCall& row : rows) {
    expect_refused(row.call, {row.text}, row.status);
  }
}

// Refusal is a row of a table of errors: how it changes a good call.
template <class Call>
struct Refusal {
  void (*change)(Call& call);
  const char* text;
  swamp_status status = SWAMP_INVALID_ARGUMENT;
};

// expect_refusals() changes the call as each row does, and expects that run()
// then throws its error.
template <class Call, class Run>
void expect_refusals(const Call& good, const std::vector<Refusal<Call>>& rows,
                     Run run) {
  for (const Refusal<Call>& row : rows) {
    Call call = good;
    row.change(call);
    SCOPED_TRACE(row.text);
    expect_refused([&] { run(call); }, {row.text}, row.status);
  }
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_ERRORS_H_
