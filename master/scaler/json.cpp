// Options and checkpoints as JSON. nlohmann-json is header-only and slow to
// compile; in libswamp only this file includes it.
#include <nlohmann/json.hpp>

#include "master/scaler/scale_manager.h"
#include "master/scaler/scaler.h"
#include "master/text.h"

namespace swamp::scaler {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;           // of the object "swamp" in a checkpoint
constexpr double kMaxCount = 0x1p53;  // integers up to it are exact

using master::refuse;

// What was given, for error texts.
std::string value_text(const Json& json) {
  constexpr std::size_t kMaxShown = 64;
  if (json.is_string() &&
      json.get_ref<const std::string&>().size() <= kMaxShown) {
    return "'" + json.get<std::string>() + "'";
  }
  return json.is_number() || json.is_boolean() ? json.dump() : json.type_name();
}

// parse() reads one object of limited depth, because destroying a deep one
// would overflow the stack.
Json parse(const std::string& name, const std::string& text) {
  constexpr int kMaxDepth = 8;
  const master::ClassicLocale scope;
  // The parser would treat a zero byte as the end of the text.
  if (text.find('\0') != std::string::npos) {
    refuse(name, "a zero byte", "a JSON object");
  }
  try {
    Json json = Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) {
        refuse(name, "more than " + std::to_string(kMaxDepth) + " levels",
               "a JSON object with fewer");
      }
      return true;
    });
    if (!json.is_object()) refuse(name, value_text(json), "a JSON object");
    return json;
  } catch (const Json::exception&) {
    refuse(name, "text that is not JSON", "a JSON object");
  }
}

ScalerValue option_value(const std::string& name, const Json& json) {
  if (json.is_null()) return std::monostate();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() &&
      json.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    return json.get<double>();
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    double value = 0;
    if (master::read_special_number(text, value)) return value;
    return text;
  }
  if (json.is_array()) {
    std::vector<std::int64_t> list;
    for (const Json& entry : json) {
      if (!entry.is_number_integer()) {
        refuse("option " + name, "a list with " + value_text(entry),
               "a list of integers");
      }
      list.push_back(entry.get<std::int64_t>());
    }
    return list;
  }
  refuse("option " + name, "an object", "a value");
}

Json number(double value, Kind kind) {
  if (kind == Kind::boolean) return value != 0.0;
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (kind == Kind::integer && std::abs(value) <= kMaxCount &&
      value == std::trunc(value)) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

double read_number(const std::string& name, const Json& json, Kind kind) {
  // A tensor of one element may have become a list.
  if (json.is_array() && json.size() == 1) {
    return read_number(name, json.front(), kind);
  }
  double value = 0;
  if (kind == Kind::boolean) {
    if (json.is_boolean()) return json.get<bool>() ? 1.0 : 0.0;
    refuse(name, value_text(json), "true or false");
  }
  if (json.is_number()) {
    value = json.get<double>();
  } else if (!json.is_string() ||
             !master::read_special_number(json.get_ref<const std::string&>(),
                                          value)) {
    refuse(name, value_text(json), "a number");
  }
  return value;
}

// check_count() throws unless the value of an integer tracker is an integer.
double check_count(const std::string& name, double value) {
  if (std::abs(value) <= kMaxCount && value == std::trunc(value)) return value;
  refuse(name, python_text(value), "an integer");
}

// forgotten() returns the trackers that the original's checkpoint lacks.
std::vector<Tracker> forgotten(const Preset& preset) {
  std::vector<Tracker> trackers;
  for (const Tracker& tracker : preset.trackers) {
    bool kept = false;
    for (const Key& key : preset.keys) {
      kept = kept || key.member == tracker.member;
    }
    if (!kept) trackers.push_back(tracker);
  }
  return trackers;
}

// check_own() throws unless the object "swamp" is of this version and scaler.
void check_own(const std::string& where, const std::string& scaler,
               const Json& own) {
  if (!own.is_object() || !own.contains("version") ||
      own["version"] != kVersion) {
    refuse(where + "swamp",
           own.is_object() && own.contains("version")
               ? "version " + value_text(own["version"])
               : value_text(own),
           "an object of version " + std::to_string(kVersion));
  }
  if (!own.contains("scaler") || own["scaler"] != scaler) {
    refuse(where + "swamp.scaler",
           own.contains("scaler") ? value_text(own["scaler"]) : "nothing",
           "'" + scaler + "'");
  }
}

void read_own(const Preset& preset, const std::string& where, const Json& own,
              Scaler& scaler) {
  check_own(where, preset.name, own);
  for (const Tracker& tracker : forgotten(preset)) {
    const std::string name = where + "swamp." + tracker.name;
    if (!own.contains(tracker.name)) refuse(name, "nothing", "a number");
    const double value = read_number(name, own[tracker.name], Kind::real);
    scaler.*tracker.member = tracker.integer ? check_count(name, value) : value;
  }
}

void check_index(const Preset& preset, const std::string& where,
                 const Scaler& scaler) {
  const auto count = static_cast<double>(scaler.window_list.size());
  const double index = scaler.list_index;
  if (index == 0 || (index == -1 && preset.rule == update_mindformers) ||
      (index > 0 && index < count)) {
    return;
  }
  refuse(where + "list_index", python_text(index),
         "an index of the window list");
}

// ---- Scale managers: lists with an entry for each tensor.

double ScaledTensor::*number_of(StateField field) {
  return field == StateField::filled ? &ScaledTensor::filled
                                     : &ScaledTensor::waiting;
}

Json field_of(const Recipe& recipe, StateField field,
              const ScaledTensor& tensor) {
  const auto real = [](float value) {
    return number(static_cast<double>(value), Kind::real);
  };
  switch (field) {
    case StateField::scale:
      return real(tensor.scale.scale);
    case StateField::scale_inv:
      return real(tensor.scale.scale_inv);
    case StateField::reciprocal:
      return real(1 / tensor.scale.scale);
    case StateField::by_tensor: {
      Json list = Json::array();
      for (const float entry : history_of(recipe, tensor)) {
        list.push_back(real(entry));
      }
      return list;
    }
    default:
      return number(tensor.*number_of(field), Kind::integer);
  }
}

// transposed() exchanges the dimensions of a list of `count` lists.
Json transposed(const Json& lists, std::size_t count) {
  Json out = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(Json::array());
    for (const Json& list : lists) out.back().push_back(list[i]);
  }
  return out;
}

void check_list(const std::string& name, const Json& json, std::size_t count) {
  if (json.is_array() && json.size() == count) return;
  refuse(name,
         json.is_array() ? "a list of " + std::to_string(json.size())
                         : value_text(json),
         "a list of " + std::to_string(count));
}

float read_float(const std::string& name, const Json& json) {
  const double value = read_number(name, json, Kind::real);
  if (std::isfinite(value) && std::isinf(static_cast<float>(value))) {
    refuse(name, python_text(value), "a float32");
  }
  return static_cast<float>(value);
}

float read_amax(const std::string& name, const Json& json) {
  const float amax = read_float(name, json);
  if (amax < 0 || (amax == 0 && std::signbit(amax))) {
    refuse(name, python_text(static_cast<double>(amax)), "at least 0, or nan");
  }
  return amax;
}

// read_scale() refuses what no step of the recipe yields.
float read_scale(const Recipe& recipe, const std::string& name,
                 const Json& json) {
  const float scale = read_float(name, json);
  const bool is_negative = scale < 0 || (scale == 0 && std::signbit(scale));
  if (recipe.any_scale
          ? is_negative
          : !(scale > 0 && std::isfinite(scale) && std::isfinite(1 / scale))) {
    refuse(name, python_text(static_cast<double>(scale)),
           recipe.any_scale
               ? "at least 0, or nan"
               : "a finite number larger than 0 with a finite inverse");
  }
  return scale;
}

void read_field(const Recipe& recipe, StateField field, const std::string& name,
                const Json& json, ScaledTensor& tensor) {
  switch (field) {
    case StateField::scale:
      tensor.scale.scale = read_scale(recipe, name, json);
      tensor.scale.scale_inv = 1 / tensor.scale.scale;
      return;
    case StateField::scale_inv:
      tensor.scale.scale_inv = read_scale(recipe, name, json);
      tensor.scale.scale = 1 / tensor.scale.scale_inv;
      return;
    case StateField::by_tensor: {
      check_list(name, json, tensor.history.size());
      for (std::size_t i = 0; i < json.size(); ++i) {
        tensor.history[i] =
            read_amax(name + "[" + std::to_string(i) + "]", json[i]);
      }
      if (recipe.amax_in_history) {
        tensor.amax = tensor.history.front();
        tensor.observed = tensor.amax != 0;
        tensor.history.front() = 0;
      }
      return;
    }
    default: {
      const double value =
          check_count(name, read_number(name, json, Kind::integer));
      const double most = field == StateField::filled && !recipe.amax_in_history
                              ? static_cast<double>(tensor.history.size())
                              : kMaxCount;
      if (value < 0 || value > most) {
        refuse(name, python_text(value),
               "at least 0, at most " + master::number_text(most));
      }
      tensor.*number_of(field) = value;
    }
  }
}

}  // namespace

std::string write_scales(const Recipe& recipe, std::size_t forward,
                         const std::vector<ScaledTensor>& tensors) {
  Json json = Json::object();
  for (const StateKey& key : recipe.keys) {
    Json& value = json[Json::json_pointer(key.pointer)];
    if (key.field == StateField::recipe) {
      value = key.text;
      continue;
    }
    const bool by_slot = key.field == StateField::by_slot;
    value = Json::array();
    for (std::size_t i = key.backward ? forward : 0;
         i < (key.backward ? tensors.size() : forward); ++i) {
      value.push_back(field_of(
          recipe, by_slot ? StateField::by_tensor : key.field, tensors[i]));
    }
    if (by_slot) {
      value =
          transposed(value, tensors.empty() ? 0 : tensors[0].history.size());
    }
  }
  json["swamp"] = {{"version", kVersion}, {"scaler", recipe.name}};
  return json.dump();
}

void read_scales(const Recipe& recipe, std::size_t forward,
                 const std::string& text, std::vector<ScaledTensor>& tensors) {
  const std::string where = std::string(recipe.name) + ": state_dict: ";
  const Json json = parse(where + "text", text);
  if (json.contains("swamp")) check_own(where, recipe.name, json["swamp"]);
  std::vector<ScaledTensor> loaded = tensors;
  for (ScaledTensor& tensor : loaded) {
    tensor.amax = 0;
    tensor.observed = false;
  }
  for (const StateKey& key : recipe.keys) {
    if (key.field == StateField::reciprocal) continue;
    const std::string name = where + key.pointer.substr(1);
    const Json::json_pointer pointer(key.pointer);
    if (key.field == StateField::recipe) {
      // Transformer Engine 1 did not save it.
      if (json.contains(pointer) && json.at(pointer) != key.text) {
        refuse(name, value_text(json.at(pointer)),
               "'" + std::string(key.text) + "'");
      }
      continue;
    }
    if (!json.contains(pointer)) refuse(name, "nothing", "a list");
    Json list = json.at(pointer);
    const std::size_t first = key.backward ? forward : 0;
    const std::size_t count = (key.backward ? loaded.size() : forward) - first;
    const bool by_slot = key.field == StateField::by_slot;
    if (by_slot) {
      const std::size_t slots = loaded.empty() ? 0 : loaded[0].history.size();
      check_list(name, list, slots);
      for (const Json& slot : list) check_list(name, slot, count);
      list = transposed(list, count);
    }
    check_list(name, list, count);
    for (std::size_t i = 0; i < count; ++i) {
      read_field(recipe, by_slot ? StateField::by_tensor : key.field,
                 name + "[" + std::to_string(i) + "]", list[i],
                 loaded[first + i]);
    }
  }
  tensors = std::move(loaded);  // cannot fail half-way
}

std::string write_state(const Preset& preset, const Scaler& scaler) {
  Json json = Json::object();
  for (const Key& key : preset.keys) {
    json[Json::json_pointer(key.pointer)] =
        number(scaler.*key.member, key.kind);
  }
  Json& own = json["swamp"];
  own["version"] = kVersion;
  own["scaler"] = preset.name;
  for (const Tracker& tracker : forgotten(preset)) {
    own[tracker.name] = number(scaler.*tracker.member,
                               tracker.integer ? Kind::integer : Kind::real);
  }
  return json.dump();
}

void read_state(const Preset& preset, const std::string& text, Scaler& scaler) {
  const std::string where = std::string(preset.name) + ": state_dict: ";
  const Json json = parse(where + "text", text);
  if (json.empty() && !preset.keys.empty()) {
    raise(scaler, "RuntimeError",
          "The source state dict is empty, possibly because it was saved from "
          "a disabled instance of GradScaler.");
  }
  Scaler loaded = scaler;
  const bool is_own = json.contains("swamp");
  for (const Key& key : preset.keys) {
    if (!is_own && !std::isnan(key.foreign)) {
      loaded.*key.member = key.foreign;
      continue;
    }
    const Json::json_pointer pointer(key.pointer);
    if (!json.contains(pointer)) {
      refuse(where + (key.pointer + 1), "nothing", "a value");
    }
    const double value =
        read_number(where + (key.pointer + 1), json.at(pointer), key.kind);
    loaded.*key.member = value;
  }
  if (is_own) read_own(preset, where, json["swamp"], loaded);
  for (const Tracker& tracker : preset.trackers) {
    if (tracker.integer) {
      check_count(where + tracker.name, loaded.*tracker.member);
    }
  }
  check_index(preset, where, loaded);
  scaler = std::move(loaded);  // cannot fail half-way
}

}  // namespace swamp::scaler

namespace swamp {

ScalerOptions scaler_options_from_json(const std::string& json) {
  ScalerOptions options;
  const scaler::Json parsed = scaler::parse("options", json);
  for (const auto& [name, value] : parsed.items()) {
    options[name] = scaler::option_value(name, value);
  }
  return options;
}

}  // namespace swamp
