#include "master/cli/json.h"

#include <fmt/core.h>

#include <cmath>
#include <set>
#include <vector>

#include "master/cli/command.h"
#include "master/cli/text.h"

namespace swamp::cli {

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

Json parse_json(const std::string& text, int max_depth) {
  // The parser would take a zero byte for the end of the text.
  if (text.find('\0') != std::string::npos) throw Failure("a zero byte");
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > max_depth) throw Failure("JSON: nested too deep");
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        throw Failure(fmt::format("JSON: got the key '{}' twice, expected once",
                                  printable(key)));
      }
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception&) {
    throw Failure("not JSON");
  }
}

const Json& json_member(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found != object.end()) return *found;
  throw Failure(fmt::format("{}: missing", name));
}

std::string json_text(const Json& object, const std::string& name) {
  const Json& value = json_member(object, name);
  if (!value.is_string()) refuse_json(name.c_str(), value, "a string");
  return value;
}

void refuse_json(const char* name, const Json& value,
                 const std::string& expected) {
  throw Failure(fmt::format("{}: got {}, expected {}", name,
                            in_quotes(json_line(value)), expected));
}

void JsonReader::read(std::string_view text) {
  // The parser would take a zero byte for the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    throw Failure(fmt::format("JSON: an error at byte {}", zero + 1));
  }
  nlohmann::json::sax_parse(text.begin(), text.end(), this);
}

bool JsonReader::parse_error(std::size_t position, const std::string&,
                             const nlohmann::detail::exception&) {
  throw Failure(fmt::format("JSON: an error at byte {}", position));
}

bool JsonReader::enter() {
  constexpr std::size_t kMaxDepth = 8;  // an unknown field may be anything
  if (++depth_ <= kMaxDepth) return true;
  throw Failure(fmt::format("JSON: nested deeper than {}", kMaxDepth));
}

}  // namespace swamp::cli
