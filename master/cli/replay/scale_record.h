// A record of a scale manager, and the results of ours.
// tests/golden/float8/README.md describes the records.
#ifndef SWAMP_MASTER_CLI_REPLAY_SCALE_RECORD_H_
#define SWAMP_MASTER_CLI_REPLAY_SCALE_RECORD_H_

#include <optional>
#include <string>

namespace swamp::cli {

struct ScaleReplay {
  std::string recipe;
  std::string json;        // the record with our results
  std::string difference;  // "" if the record has them
};

// replay_scales() runs a line. Returns nothing if it is not of a scale manager.
// Throws Failure if it is bad, and if `check` for missing results.
std::optional<ScaleReplay> replay_scales(const std::string& line, bool check);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_SCALE_RECORD_H_
