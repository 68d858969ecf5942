// nlohmann-json is slow to compile: only this source includes it.
#include "master/cli/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "master/cli/command.h"
#include "master/cli/text.h"

namespace swamp::cli {

using Value = nlohmann::ordered_json;

// JsonConversion converts to and from the library's type.
struct JsonConversion {
  static Value to_value(const Json& json) {
    return std::visit(JsonConversion(), json.value_);
  }

  Value operator()(std::monostate) const { return nullptr; }
  Value operator()(double number) const {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    return number;
  }
  Value operator()(const Json::Array& values) const {
    Value array = Value::array();
    for (const Json& value : values) array.push_back(to_value(value));
    return array;
  }
  Value operator()(const Json::Members& members) const {
    Value object = Value::object();
    for (std::size_t i = 0; i < members.names.size(); ++i) {
      object.push_back({members.names[i], to_value(members.values[i])});
    }
    return object;
  }
  template <class T>
  Value operator()(const T& same) const {
    return same;
  }

  static Json from_value(const Value& value) {
    switch (value.type()) {
      case Value::value_t::boolean:
        return value.get<bool>();
      case Value::value_t::number_integer:
        return value.get<std::int64_t>();
      case Value::value_t::number_unsigned:
        return value.get<std::uint64_t>();
      case Value::value_t::number_float:
        return value.get<double>();
      case Value::value_t::string:
        return value.get_ref<const std::string&>();
      case Value::value_t::array: {
        Json::Array array;
        for (const Value& entry : value) array.push_back(from_value(entry));
        return array;
      }
      case Value::value_t::object: {
        Json object;
        object.value_ = Json::Members();
        for (const auto& [name, member] : value.items()) {
          object[name] = from_value(member);
        }
        return object;
      }
      default:
        return {};
    }
  }
};

Json& Json::operator[](const std::string& name) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = Members();
  auto& [names, values] = std::get<Members>(value_);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) {
    return values[static_cast<std::size_t>(found - names.begin())];
  }
  names.push_back(name);
  return values.emplace_back();
}

const Json* Json::find(const std::string& name) const {
  const Members* members = get_if<Members>();
  if (members == nullptr) return nullptr;
  const auto found =
      std::find(members->names.begin(), members->names.end(), name);
  if (found == members->names.end()) return nullptr;
  return &members->values[static_cast<std::size_t>(found -
                                                   members->names.begin())];
}

void Json::update(const Json& members) {
  const auto& [names, values] = std::get<Members>(members.value_);
  for (std::size_t i = 0; i < names.size(); ++i) (*this)[names[i]] = values[i];
}

std::string Json::line() const {
  return JsonConversion::to_value(*this).dump(-1, ' ', false,
                                              Value::error_handler_t::replace);
}

bool Json::operator==(const Json& other) const {
  return JsonConversion::to_value(*this) == JsonConversion::to_value(other);
}

Json parse_json(const std::string& text, int max_depth) {
  // The parser would take a zero byte for the end of the text.
  if (text.find('\0') != std::string::npos) throw Failure("a zero byte");
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Value::parse_event_t event, Value& value) {
    if (depth > max_depth) throw Failure("JSON: nested too deep");
    if (event == Value::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Value::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Value::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        throw Failure(fmt::format("JSON: got the key '{}' twice, expected once",
                                  printable(key)));
      }
    }
    return true;
  };
  try {
    return JsonConversion::from_value(Value::parse(text, check));
  } catch (const Value::exception&) {
    throw Failure("not JSON");
  }
}

namespace {

// Sax passes the parser's events on, and refuses values that lie too deep. The
// parser is a loop, so depth costs no stack.
class Sax final : public Value::json_sax_t {
 public:
  Sax(JsonEvents& events, std::size_t max_depth)
      : events_(events), max_depth_(max_depth) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override {
    return other("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return other("a fraction");
  }
  bool number_unsigned(number_unsigned_t value) override {
    events_.integer(value);
    return true;
  }
  bool string(string_t& value) override {
    events_.string(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }  // not in JSON
  bool start_object(std::size_t) override {
    enter();
    events_.begin_object();
    return true;
  }
  bool key(string_t& name) override {
    events_.key(name);
    return true;
  }
  bool end_object() override {
    --depth_;
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    events_.begin_array();
    return true;
  }
  bool end_array() override {
    --depth_;
    events_.end_array();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw Failure(fmt::format("JSON: an error at byte {}", position));
  }

 private:
  bool other(const char* kind) {
    events_.other(kind);
    return true;
  }
  void enter() {
    if (++depth_ <= max_depth_) return;
    throw Failure(fmt::format("JSON: nested deeper than {}", max_depth_));
  }

  JsonEvents& events_;
  std::size_t max_depth_;
  std::size_t depth_ = 0;
};

}  // namespace

void read_json(std::string_view text, std::size_t max_depth,
               JsonEvents& events) {
  // The parser would take a zero byte for the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    throw Failure(fmt::format("JSON: an error at byte {}", zero + 1));
  }
  Sax sax(events, max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
}

}  // namespace swamp::cli
