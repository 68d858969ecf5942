// Records of scale managers, and of computations with scales: blocks of codes,
// casts and products. tests/golden/float8/README.md describes them.
#ifndef SWAMP_MASTER_CLI_REPLAY_FLOAT8_RECORD_H_
#define SWAMP_MASTER_CLI_REPLAY_FLOAT8_RECORD_H_

#include <optional>
#include <string>

#include "master/cli/json.h"
#include "master/cli/replay/code_fields.h"
#include "swamp/machine.h"

namespace swamp::cli {

struct RecordReplay {
  std::string name;        // the recipe, or the computation
  std::string json;        // the record with our results
  std::string difference;  // the first; "" if the record has them
};

// replay_scales() runs a line. Returns nothing if it is not of a scale manager.
// Throws Failure if it is bad, and if `check` for missing results.
std::optional<RecordReplay> replay_scales(const std::string& line, bool check);

// replay_codes() is replay_scales() for records of blocks, casts and products.
std::optional<RecordReplay> replay_codes(const std::string& line, bool check,
                                         CodeInputs& inputs, Machine& machine);

// read_float() takes the bits of a float32, 8 hexadecimal digits. Throws
// Failure.
float read_float(const char* name, const Json& json);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_FLOAT8_RECORD_H_
