#ifndef SWAMP_MASTER_CLI_SCAN_INDEX_FILE_H_
#define SWAMP_MASTER_CLI_SCAN_INDEX_FILE_H_

#include <map>
#include <string>
#include <vector>

#include "master/cli/scan/byte_stream.h"

namespace swamp::cli {

// ShardMap is the tensors that each file of a sharded checkpoint must hold, by
// the file's name relative to the index.
using ShardMap = std::map<std::string, std::vector<std::string>>;

// read_index() reads the JSON of a *.index.json: {"weight_map": {tensor:
// file}}. A file outside of the index's folder is refused. Throws Failure.
ShardMap read_index(Bytes json);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_INDEX_FILE_H_
