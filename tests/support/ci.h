// What is left out of toolchain/check, for its time, runs in CI.
#ifndef SWAMP_TESTS_SUPPORT_CI_H_
#define SWAMP_TESTS_SUPPORT_CI_H_

#include <cstdlib>
#include <string>

namespace swamp::test {

inline bool is_ci() {
  const char* const value = std::getenv("CI");
  return value != nullptr && std::string(value) == "true";
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_CI_H_
