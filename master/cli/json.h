// JSON of nlohmann-json: the objects that the program prints, one per line, and
// the texts that it reads, which are not trusted.
#ifndef SWAMP_MASTER_CLI_JSON_H_
#define SWAMP_MASTER_CLI_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace swamp::cli {

using Json = nlohmann::ordered_json;

// json_line() is the text without line breaks. Bytes that are not UTF-8, as a
// CPU's name may have, are replaced.
std::string json_line(const Json& json);

// json_number() is a string if the number is inf or nan.
Json json_number(double number);

// parse_json() reads one value that is nested at most `max_depth` deep. Throws
// Failure, also if an object has a key twice.
Json parse_json(const std::string& text, int max_depth);

// json_member() throws Failure if an object lacks the member.
const Json& json_member(const Json& object, const std::string& name);

// json_text() throws Failure also if the member is not a string.
std::string json_text(const Json& object, const std::string& name);

// refuse_json() throws Failure for a value of another kind than expected.
[[noreturn]] void refuse_json(const char* name, const Json& value,
                              const std::string& expected);

// JsonReader is for texts that are too large to keep: it is told what a text
// holds, in order, by the functions of nlohmann::json_sax. What they throw ends
// the reading. Values that are never wanted go to refuse().
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  // read() reads all of `text`, which must be one JSON value. Throws Failure.
  void read(std::string_view text);

  bool null() override { return refuse("null"); }
  bool boolean(bool) final { return refuse("a boolean"); }
  bool number_integer(number_integer_t) final {
    return refuse("a negative number");
  }
  bool number_float(number_float_t, const string_t&) final {
    return refuse("a fraction");
  }
  bool binary(binary_t&) final { return false; }  // not in JSON
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) final;

 protected:
  // check() throws Failure if a value is not `fine` at this place.
  virtual void check(const char* kind, bool fine) const = 0;
  bool refuse(const char* kind) const {
    check(kind, false);
    return true;
  }
  // enter() begins an object or array. The parser is a loop, so depth costs no
  // stack.
  bool enter();
  bool leave() {
    --depth_;
    return true;
  }
  std::size_t depth() const { return depth_; }

 private:
  std::size_t depth_ = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_JSON_H_
