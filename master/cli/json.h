// JSON: the objects that the program prints, one per line, and the texts that
// it reads, which are not trusted.
#ifndef SWAMP_MASTER_CLI_JSON_H_
#define SWAMP_MASTER_CLI_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace swamp::cli {

// Json is a JSON value. An object keeps the order of its members.
class Json {
 public:
  using Array = std::vector<Json>;

  Json() = default;  // null
  template <class Number,
            std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  Json(Number number) : value_(stored(number)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(Array values) : value_(std::move(values)) {}
  Json(const std::vector<std::string>& texts)
      : value_(Array(texts.begin(), texts.end())) {}
  Json(const std::vector<std::uint64_t>& numbers)
      : value_(Array(numbers.begin(), numbers.end())) {}

  // operator[] makes null an object, and adds the member if it is missing.
  Json& operator[](const std::string& name);
  // find() returns a member, null if there is none.
  const Json* find(const std::string& name) const;
  // update() sets all members of another object.
  void update(const Json& members);

  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&value_);
  }
  const std::string* text() const noexcept { return get_if<std::string>(); }
  const Array* array() const noexcept { return get_if<Array>(); }
  bool is_object() const noexcept { return get_if<Members>() != nullptr; }

  // line() is the text without line breaks. A number is the shortest decimal
  // that reads back the same; inf and nan are strings; bytes that are not
  // UTF-8, as a CPU's name may have, are replaced.
  std::string line() const;

  // Numbers are equal if their values are: 1 == 1.0.
  bool operator==(const Json& other) const;
  bool operator!=(const Json& other) const { return !(*this == other); }

 private:
  friend struct JsonConversion;
  struct Members {
    std::vector<std::string> names;
    Array values;
  };

  template <class Number>
  static auto stored(Number number) {
    if constexpr (std::is_same_v<Number, bool>) {
      return number;
    } else if constexpr (std::is_floating_point_v<Number>) {
      return static_cast<double>(number);
    } else if constexpr (std::is_signed_v<Number>) {
      return static_cast<std::int64_t>(number);
    } else {
      return static_cast<std::uint64_t>(number);
    }
  }

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
               std::string, Array, Members>
      value_;
};

// parse_json() reads one value that is nested at most `max_depth` deep. A
// number that is not negative is an std::uint64_t, if it is an integer. Throws
// Failure, also if an object has a key twice.
Json parse_json(const std::string& text, int max_depth);

// JsonEvents is told what a JSON text holds, in order. What it throws ends the
// reading.
class JsonEvents {
 public:
  JsonEvents() = default;
  virtual ~JsonEvents() = default;
  JsonEvents(const JsonEvents&) = delete;
  JsonEvents& operator=(const JsonEvents&) = delete;

  virtual void begin_object() = 0;
  virtual void key(const std::string& name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void string(const std::string& value) = 0;
  virtual void integer(std::uint64_t value) = 0;
  // other() is null, a boolean, a negative number or a fraction.
  virtual void other(const char* kind) = 0;
};

// read_json() reads all of `text`, which must be one JSON value nested at most
// `max_depth` deep, and keeps nothing of it. Throws Failure.
void read_json(std::string_view text, std::size_t max_depth,
               JsonEvents& events);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_JSON_H_
