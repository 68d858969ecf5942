#ifndef SWAMP_MASTER_CLI_PREDICT_OPTIONS_H_
#define SWAMP_MASTER_CLI_PREDICT_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace swamp::cli {

struct PredictOptions {
  std::string operation = "unscale";
  std::string dtype;  // "": that of the file, or float32
  std::string to;     // "": the operation's own
  std::string list;   // "" with files
  std::vector<std::string> files;
  std::string machine = "sw26010pro";
  std::vector<std::uint64_t> core_groups;  // empty: all of the machine
  std::vector<std::uint64_t> tiles;        // bytes; empty: the machine's
  std::uint64_t align = 128;               // bytes, of every tensor
  std::uint64_t offset = 0;                // bytes, of the first
  bool json = false;
  bool table = false;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_OPTIONS_H_
