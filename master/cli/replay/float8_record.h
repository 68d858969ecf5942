// Records of scale managers, and of computations with scales: blocks of codes,
// casts and products. tests/golden/float8/README.md describes them.
#ifndef SWAMP_MASTER_CLI_REPLAY_FLOAT8_RECORD_H_
#define SWAMP_MASTER_CLI_REPLAY_FLOAT8_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "master/cli/json.h"
#include "swamp/machine.h"

namespace swamp::cli {

struct RecordReplay {
  std::string name;        // the recipe, or the computation
  std::string json;        // the record with our results
  std::string difference;  // "" if the record has them
};

// replay_scales() runs a line. Returns nothing if it is not of a scale manager.
// Throws Failure if it is bad, and if `check` for missing results.
std::optional<RecordReplay> replay_scales(const std::string& line, bool check);

// CodeInputs reads the matrices that records of blocks name, when the first is
// needed: the lines of `inputs.jsonl`, which lies beside the file of records.
class CodeInputs {
 public:
  // Rows of bfloat16.
  struct Input {
    std::size_t rows, columns;
    std::vector<std::uint16_t> bits;
  };

  explicit CodeInputs(std::string path) : path_(std::move(path)) {}
  // Throws Failure if there is no such matrix.
  const Input& at(const std::string& name);

 private:
  std::string path_;
  std::map<std::string, Input> inputs_;
};

// replay_codes() is replay_scales() for records of blocks, casts and products.
std::optional<RecordReplay> replay_codes(const std::string& line, bool check,
                                         CodeInputs& inputs, Machine& machine);

// read_float() takes the bits of a float32, 8 hexadecimal digits. Throws
// Failure.
float read_float(const char* name, const Json& json);

// record_difference() returns the first place where two records differ, "" if
// there is none. They have the same keys.
std::string record_difference(const std::string& where, const Json& ours,
                              const Json& theirs);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_FLOAT8_RECORD_H_
