// A trace of a loss scaler, and the results of ours. tests/golden/FORMAT.md
// describes the format.
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
  float found_inf = 1.0f;      // its value in a step that overflows
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
  Row init;                      // before the first step; its step is unused
  std::vector<bool> is_integer;  // by tracker
  std::vector<Row> rows;
  std::vector<Digest> digests;
  std::optional<Event> event;
};

// read_trace() reads a line. Returns nothing for a record of another kind.
// Throws Failure if the record is bad.
std::optional<Trace> read_trace(const std::string& line);

// replay_json() is a replay as a line without its end.
std::string replay_json(const Trace& trace, const Replay& replay);

// difference() returns "" if `line` has the rows, digests and event of the
// replay, else the first difference. Throws Failure if it has none of them.
std::string difference(const std::string& line, const Trace& trace,
                       const Replay& replay);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_TRACE_H_
