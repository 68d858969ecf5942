#ifndef SWAMP_TESTS_SUPPORT_COMPARE_H_
#define SWAMP_TESTS_SUPPORT_COMPARE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <ios>
#include <sstream>

#include "support/formats.h"

namespace swamp::test {

// same_elements() compares bits; where the payload of a nan is not promised,
// any nan equals any other.
inline testing::AssertionResult same_elements(const Format& format,
                                              const void* actual,
                                              const void* expected,
                                              std::size_t count,
                                              bool nan_payload) {
  if (count == 0 || std::memcmp(actual, expected, count * format.bytes) == 0) {
    return testing::AssertionSuccess();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t a = load_bits(format, actual, i);
    const std::uint64_t e = load_bits(format, expected, i);
    if (a == e) continue;
    if (!nan_payload && format.is_nan(a) && format.is_nan(e)) continue;
    // AssertionFailure() formats each value alone and forgets std::hex.
    std::ostringstream text;
    text << format.name << " element " << i << " of " << count << ": 0x"
         << std::hex << a << ", expected 0x" << e;
    return testing::AssertionFailure() << text.str();
  }
  return testing::AssertionSuccess();
}

inline testing::AssertionResult same_elements(const Format& format,
                                              const void* actual,
                                              const void* expected,
                                              std::size_t count) {
  return same_elements(format, actual, expected, count,
                       has_nan_payload(format));
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_COMPARE_H_
