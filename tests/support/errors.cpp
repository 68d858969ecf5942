#include "support/errors.h"

namespace swamp::test {

std::string error_text(const Error& error, swamp_status status) {
  const std::string text = error.what();
  EXPECT_EQ(error.status(), status) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

testing::AssertionResult has_words(const std::string& text,
                                   const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (text.find(word) == std::string::npos) {
      return testing::AssertionFailure() << "no '" << word << "' in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace swamp::test
