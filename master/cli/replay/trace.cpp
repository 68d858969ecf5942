// Traces as JSON. nlohmann-json is slow to compile, so of the sources of replay
// only this one includes it.
#include "master/cli/replay/trace.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

using Json = nlohmann::ordered_json;

// A trace holds at most one row a step.
constexpr std::uint64_t kMaxSteps = 1000000;

// parse() bounds the depth: nlohmann's dump() recurses.
Json parse(const std::string& line) {
  constexpr int kMaxDepth = 16;
  // The parser would take a zero byte for the end of the text.
  if (line.find('\0') != std::string::npos) throw Failure("a zero byte");
  try {
    Json json = Json::parse(line, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) throw Failure("JSON: nested too deep");
      return true;
    });
    if (!json.is_object()) throw Failure("expected a JSON object");
    return json;
  } catch (const Json::exception&) {
    throw Failure("not JSON");
  }
}

const Json& member(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) throw Failure(fmt::format("{}: missing", name));
  return *found;
}

std::string text(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_string()) {
    throw Failure(fmt::format("{}: expected a string", name));
  }
  return value.get<std::string>();
}

std::string object(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_object()) {
    throw Failure(fmt::format("{}: expected an object", name));
  }
  return value.dump();
}

std::uint64_t count(const Json& value, const char* name, std::uint64_t low,
                    std::uint64_t high) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number >= low && number <= high) return number;
  }
  throw Failure(fmt::format("{}: got {}, expected an integer, {} to {}", name,
                            value.dump(), low, high));
}

void mark_step(std::uint64_t step, std::vector<bool>& overflow) {
  if (step >= overflow.size()) {
    throw Failure(fmt::format("overflow: got step {}, expected less than n, {}",
                              step, overflow.size()));
  }
  if (overflow[step]) {
    throw Failure(
        fmt::format("overflow: got step {} twice, expected once", step));
  }
  overflow[step] = true;
}

// mark() takes a step, [start, count] or [start, count, stride]. It refuses to
// mark a step twice, so that a list of any length is read in bounded time.
void mark(const Json& entry, std::vector<bool>& overflow) {
  constexpr const char* kName = "overflow";
  const std::uint64_t steps = overflow.size();
  if (steps == 0) throw Failure("overflow: got a step, expected none: n is 0");
  if (!entry.is_array()) {
    mark_step(count(entry, kName, 0, steps - 1), overflow);
    return;
  }
  if (entry.size() != 2 && entry.size() != 3) {
    throw Failure(
        "overflow: expected a step, [start, count] or "
        "[start, count, stride]");
  }
  const std::uint64_t start = count(entry[0], kName, 0, steps - 1);
  const std::uint64_t times = count(entry[1], kName, 0, steps);
  const std::uint64_t stride =
      entry.size() == 3 ? count(entry[2], kName, 1, steps) : 1;
  for (std::uint64_t i = 0; i < times; ++i) {
    mark_step(start + i * stride, overflow);
  }
}

float found_inf(const Json& json) {
  const auto found = json.find("found_inf_value");
  if (found == json.end()) return 1.0f;
  if (found->is_number()) return static_cast<float>(found->get<double>());
  if (*found == "inf") return HUGE_VALF;
  if (*found == "nan") return std::nanf("");
  throw Failure("found_inf_value: expected a number");
}

std::vector<std::string> trackers(const Json& json) {
  std::vector<std::string> names;
  const Json& value = member(json, "trackers");
  if (!value.is_array()) throw Failure("trackers: expected a list");
  for (const Json& name : value) {
    if (!name.is_string()) throw Failure("trackers: expected strings");
    names.push_back(name.get<std::string>());
  }
  return names;
}

// hex() is a C99 hex float without trailing zeros, or inf.
std::string hex(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%a", value);
  return buffer;
}

Json number(double value, bool integer) {
  if (!std::isfinite(value)) return hex(value);
  if (integer && std::abs(value) <= 0x1p53) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

Json row_json(const Row& row, const Replay& replay, bool with_step) {
  Json json = Json::array();
  if (with_step) json.push_back(row.step);
  json.push_back(hex(row.scale));
  for (std::size_t i = 0; i < row.trackers.size(); ++i) {
    json.push_back(number(row.trackers[i], replay.is_integer[i]));
  }
  return json;
}

Json to_json(const Trace& trace, const Replay& replay) {
  Json json;
  json["id"] = trace.id;
  json["init"] = row_json(replay.init, replay, false);
  Json& rows = json["rows"] = Json::array();
  for (const Row& row : replay.rows) {
    rows.push_back(row_json(row, replay, true));
  }
  Json& digests = json["digest"] = Json::array();
  for (const Digest& digest : replay.digests) {
    digests.push_back({digest.step, fmt::format("{:016x}", digest.hash)});
  }
  if (replay.event) {
    json["event"] = {replay.event->step, replay.event->type,
                     replay.event->message};
  }
  return json;
}

std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// first_difference() shows the entries that differ in two lists.
std::string first_difference(const char* name, const Json& ours,
                             const Json& theirs) {
  if (!theirs.is_array() || name == std::string("event")) {
    return fmt::format("{} is {}, the file has {}", name, one_line(ours),
                       one_line(theirs));
  }
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  const Json none = "nothing more";
  return fmt::format("{}[{}] is {}, the file has {}", name, i,
                     one_line(i < ours.size() ? ours[i] : none),
                     one_line(i < theirs.size() ? theirs[i] : none));
}

}  // namespace

std::optional<Trace> read_trace(const std::string& line) {
  const Json json = parse(line);
  const bool has_kind = json.contains("kind");
  if (has_kind && text(json, "kind") != "ckpt") return std::nullopt;
  Trace trace;
  trace.id = text(json, "id");
  trace.scaler = text(json, "scaler");
  trace.params = object(json, "params");
  if (has_kind) {
    trace.saved_by = object(json, "saved_by");
    trace.state_dict = object(json, "state_dict");
  }
  const std::string dtype = text(json, "scale_dtype");
  if (dtype != "f32" && dtype != "f64") {
    throw Failure(
        fmt::format("scale_dtype: got '{}', expected f32 or f64", dtype));
  }
  trace.is_float32 = dtype == "f32";
  trace.trackers = trackers(json);
  trace.found_inf = found_inf(json);
  trace.overflow.resize(count(member(json, "n"), "n", 0, kMaxSteps));
  const Json& overflow = member(json, "overflow");
  if (!overflow.is_array()) throw Failure("overflow: expected a list");
  for (const Json& entry : overflow) mark(entry, trace.overflow);
  return trace;
}

std::string replay_json(const Trace& trace, const Replay& replay) {
  return one_line(to_json(trace, replay));
}

std::string difference(const std::string& line, const Trace& trace,
                       const Replay& replay) {
  const Json theirs = parse(line);
  const Json ours = to_json(trace, replay);
  for (const char* name : {"init", "rows", "digest"}) {
    const Json& expected = member(theirs, name);
    if (ours[name] != expected) {
      return first_difference(name, ours[name], expected);
    }
  }
  const Json event = ours.value("event", Json());
  const Json expected = theirs.value("event", Json());
  return event == expected ? "" : first_difference("event", event, expected);
}

}  // namespace swamp::cli
