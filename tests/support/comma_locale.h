// A locale whose numbers have another decimal point, for as long as an object
// lives. It is written here, because a machine may have no locale but "C".
#ifndef SWAMP_TESTS_SUPPORT_COMMA_LOCALE_H_
#define SWAMP_TESTS_SUPPORT_COMMA_LOCALE_H_

#include <unistd.h>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace swamp::test {

class DecimalPointScope {
 public:
  explicit DecimalPointScope(const std::string& point)
      : folder_(std::filesystem::temp_directory_path() /
                ("swamp_locale." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_ / name(point));
    std::ofstream file(folder_ / name(point) / "LC_NUMERIC", std::ios::binary);
    file << content(point);
    file.close();
    setenv("LOCPATH", folder_.c_str(), 1);
    is_set_ = std::setlocale(LC_NUMERIC, name(point).c_str()) != nullptr &&
              std::localeconv()->decimal_point == point;
    unsetenv("LOCPATH");
  }
  ~DecimalPointScope() {
    std::setlocale(LC_NUMERIC, "C");
    std::filesystem::remove_all(folder_);
  }
  DecimalPointScope(const DecimalPointScope&) = delete;
  DecimalPointScope& operator=(const DecimalPointScope&) = delete;

  // False with a C library whose files are not glibc's.
  bool is_set() const { return is_set_; }

 private:
  // setlocale() keeps a locale by its name.
  static std::string name(const std::string& point) {
    return "swamp_" + std::to_string(static_cast<unsigned char>(point[0]));
  }

  // glibc's format: a magic number, the number of fields and their places, and
  // the fields: decimal point, thousands separator, grouping, both separators
  // as wide characters, character set.
  static std::string content(const std::string& point) {
    const std::string wide(4, '\0');
    const std::string fields[] = {point + std::string(4 - point.size(), '\0'),
                                  wide,
                                  wide,
                                  std::string(",\0\0\0", 4),
                                  wide,
                                  std::string("UTF-8\0\0\0", 8)};
    std::vector<std::uint32_t> header = {0x20031115 ^ LC_NUMERIC,
                                         std::size(fields)};
    std::uint32_t at = 4 * (2 + std::size(fields));
    for (const std::string& field : fields) {
      header.push_back(at);
      at += static_cast<std::uint32_t>(field.size());
    }
    std::string text(reinterpret_cast<const char*>(header.data()),
                     4 * header.size());
    for (const std::string& field : fields) text += field;
    return text;
  }

  std::filesystem::path folder_;
  bool is_set_ = false;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_COMMA_LOCALE_H_
