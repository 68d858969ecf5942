// Reads a line of golden data that is one JSON object with few kinds of fields.
#ifndef SWAMP_TESTS_SUPPORT_JSON_FIELDS_H_
#define SWAMP_TESTS_SUPPORT_JSON_FIELDS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "swamp/float_formats.h"

namespace swamp::test {

// JsonFields returns the fields of a line in their order. A field may be left
// out, but none is read twice.
class JsonFields {
 public:
  explicit JsonFields(std::string line) : line_(std::move(line)) {}

  // has() returns whether there is another field of this name.
  bool has(const std::string& key) const {
    return line_.find('"' + key + "\": ", at_) != std::string::npos;
  }
  // text() is the value of the next field of this name, without quotes; of a
  // list, the first.
  std::string text(const std::string& key) {
    const std::size_t found = line_.find('"' + key + "\": ", at_);
    if (found == std::string::npos) {
      ADD_FAILURE() << "no " << key << " in " << line_.substr(0, 80);
      return "";
    }
    std::size_t begin = found + key.size() + 4;
    if (line_[begin] == '[') ++begin;
    if (line_[begin] == '"') ++begin;
    at_ = line_.find_first_of("\",}", begin);
    return line_.substr(begin, at_ - begin);
  }
  bool is(const std::string& key, const std::string& value) {
    return text(key) == value;
  }
  // words() are numbers of so many hexadecimal digits each.
  std::vector<std::uint32_t> words(const std::string& key, std::size_t digits) {
    const std::string all = text(key);
    std::vector<std::uint32_t> words;
    for (std::size_t i = 0; i < all.size(); i += digits) {
      words.push_back(static_cast<std::uint32_t>(
          std::stoul(all.substr(i, digits), nullptr, 16)));
    }
    return words;
  }
  std::uint32_t word(const std::string& key) {
    return static_cast<std::uint32_t>(std::stoul(text(key), nullptr, 16));
  }
  float number(const std::string& key) { return float_from_bits(word(key)); }

 private:
  std::string line_;
  std::size_t at_ = 0;
};

// for_each_golden() visits the lines of a file of tests/golden/float8.
template <class Visit>
void for_each_golden(const std::string& name, Visit visit) {
  std::ifstream file(std::string(SWAMP_GOLDEN_DIR) + "/float8/" + name +
                     ".jsonl");
  std::string line;
  std::size_t lines = 0;
  for (; std::getline(file, line); ++lines) {
    SCOPED_TRACE(name + ": " + line.substr(0, 120));
    visit(JsonFields(line));
  }
  EXPECT_GT(lines, 0u) << name;
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_JSON_FIELDS_H_
