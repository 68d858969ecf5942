// Traces as JSON.
#include "master/cli/replay/trace.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>

#include "master/cli/command.h"
#include "master/cli/json.h"

namespace swamp::cli {
namespace {

// A trace holds at most one row per step.
constexpr std::uint64_t kMaxSteps = 1000000;

Json parse(const std::string& line) {
  constexpr int kMaxDepth = 16;
  Json json = parse_json(line, kMaxDepth);
  if (!json.is_object()) refuse_json("record", json, "an object");
  return json;
}

std::string object(const Json& json, const char* name) {
  const Json& value = json_member(json, name);
  if (!value.is_object()) refuse_json(name, value, "an object");
  return json_line(value);
}

std::uint64_t count(const Json& value, const char* name, std::uint64_t low,
                    std::uint64_t high) {
  if (value.is_number_unsigned() && value >= low && value <= high) return value;
  throw Failure(fmt::format("{}: got {}, expected an integer, {} to {}", name,
                            json_line(value), low, high));
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
    refuse_json(kName, entry,
                "a step, [start, count] or [start, count, stride]");
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
  const Json found = json.value("found_inf_value", Json(1.0f));
  if (found.is_number()) return found;
  if (found == "inf") return HUGE_VALF;
  if (found == "nan") return std::nanf("");
  refuse_json("found_inf_value", found, "a number, inf or nan");
}

std::vector<std::string> trackers(const Json& json) {
  std::vector<std::string> names;
  const Json& list = json_member(json, "trackers");
  if (!list.is_array()) refuse_json("trackers", list, "a list");
  for (const Json& value : list) {
    if (!value.is_string()) refuse_json("trackers", value, "strings");
    names.push_back(value);
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
  if (with_step) json.emplace_back(row.step);
  json.emplace_back(hex(row.scale));
  for (std::size_t i = 0; i < row.trackers.size(); ++i) {
    json.push_back(number(row.trackers[i], replay.is_integer[i]));
  }
  return json;
}

Json to_json(const Trace& trace, const Replay& replay) {
  Json json;
  json["id"] = trace.id;
  json["init"] = row_json(replay.init, replay, false);
  json["rows"] = Json::array();
  for (const Row& row : replay.rows) {
    json["rows"].push_back(row_json(row, replay, true));
  }
  json["digest"] = Json::array();
  for (const Digest& digest : replay.digests) {
    json["digest"].push_back(
        {digest.step, fmt::format("{:016x}", digest.hash)});
  }
  if (replay.event) {
    json["event"] = {replay.event->step, replay.event->type,
                     replay.event->message};
  }
  return json;
}

// first_difference() shows the entries that differ in two lists.
std::string first_difference(const char* name, const Json& ours,
                             const Json& theirs) {
  if (!ours.is_array() || !theirs.is_array() || name == std::string("event")) {
    return fmt::format("{} is {}, the file has {}", name, json_line(ours),
                       json_line(theirs));
  }
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  const auto shown = [&](const Json& list) {
    return json_line(i < list.size() ? list[i] : Json("nothing more"));
  };
  return fmt::format("{}[{}] is {}, the file has {}", name, i, shown(ours),
                     shown(theirs));
}

}  // namespace

std::optional<Trace> read_trace(const std::string& line) {
  const Json json = parse(line);
  const bool has_kind = json.contains("kind");
  if (has_kind && json_text(json, "kind") != "ckpt") return std::nullopt;
  if (!has_kind && !json.contains("scaler")) return std::nullopt;
  Trace trace;
  trace.id = json_text(json, "id");
  trace.scaler = json_text(json, "scaler");
  trace.params = object(json, "params");
  if (has_kind) {
    trace.saved_by = object(json, "saved_by");
    trace.state_dict = object(json, "state_dict");
  }
  const std::string dtype = json_text(json, "scale_dtype");
  if (dtype != "f32" && dtype != "f64") {
    throw Failure(
        fmt::format("scale_dtype: got '{}', expected f32 or f64", dtype));
  }
  trace.is_float32 = dtype == "f32";
  trace.trackers = trackers(json);
  trace.found_inf = found_inf(json);
  trace.overflow.resize(count(json_member(json, "n"), "n", 0, kMaxSteps));
  const Json& overflow = json_member(json, "overflow");
  if (!overflow.is_array()) refuse_json("overflow", overflow, "a list");
  for (const Json& entry : overflow) mark(entry, trace.overflow);
  return trace;
}

std::string replay_json(const Trace& trace, const Replay& replay) {
  return json_line(to_json(trace, replay));
}

std::string difference(const std::string& line, const Trace& trace,
                       const Replay& replay) {
  const Json theirs = parse(line);
  const Json ours = to_json(trace, replay);
  for (const char* name : {"init", "rows", "digest"}) {
    const Json& own = json_member(ours, name);
    const Json& expected = json_member(theirs, name);
    if (own != expected) return first_difference(name, own, expected);
  }
  const Json event = ours.value("event", Json());
  const Json expected = theirs.value("event", Json());
  return event == expected ? "" : first_difference("event", event, expected);
}

}  // namespace swamp::cli
