// A trace of a loss scaler, and what our scaler makes of it. The format is
// tests/golden/FORMAT.md.
#ifndef SWAMP_MASTER_CLI_REPLAY_TRACE_H_
#define SWAMP_MASTER_CLI_REPLAY_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace swamp::cli {

struct Trace {
  std::string id;
  std::string scaler;
  std::string params;          // JSON
  std::string saved_by;        // JSON, of a checkpoint; "" for none
  std::string state_dict;      // JSON, of a checkpoint; "" for none
  std::vector<bool> overflow;  // by step
  float found_inf = 1.0f;      // its value where there is an overflow
  bool is_float32 = true;
  std::vector<std::string> trackers;
};

// Row is the state after a step.
struct Row {
  std::size_t step;
  double scale;
  std::vector<double> trackers;
};

struct Digest {
  std::size_t step;
  std::uint64_t hash;
};

struct Event {
  std::size_t step;
  std::string type;
  std::string message;
};

struct Replay {
  Row init;                      // its step means nothing
  std::vector<bool> is_integer;  // by tracker
  std::vector<Row> rows;
  std::vector<Digest> digests;
  std::optional<Event> event;
};

// play() runs the trace; throws Failure for one that our scaler refuses.
Replay play(const Trace& trace);

// read_trace() reads a line; nothing for a record of another kind. Throws
// Failure that says what is bad.
std::optional<Trace> read_trace(const std::string& line);

// replay_json() is a replay as a line without its end.
std::string replay_json(const Trace& trace, const Replay& replay);

// difference() is "" where `line` has the rows, digests and event of the
// replay, else what differs. Throws Failure where it has none of them.
std::string difference(const std::string& line, const Trace& trace,
                       const Replay& replay);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_TRACE_H_
