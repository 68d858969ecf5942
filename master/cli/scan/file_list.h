#ifndef SWAMP_MASTER_CLI_SCAN_FILE_LIST_H_
#define SWAMP_MASTER_CLI_SCAN_FILE_LIST_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// ScanFile is one file to scan.
struct ScanFile {
  std::string path;
  FileFormat format;
  // The tensors that the file must hold, because an index lists them.
  std::vector<std::string> expected;
};

// list_files() returns the files that the arguments of scan name: files as they
// are, of a folder its *.safetensors, *.npy and *.npz sorted by name, of an
// index its shards. A shard of an index in the same folder is listed once. An
// error of an argument goes to `complain`, and the others are listed.
std::vector<ScanFile> list_files(
    const std::vector<std::string>& arguments, bool recursive,
    const std::function<void(const std::string& text)>& complain);

// ShardMap is the tensors that each file of a sharded checkpoint must hold, by
// the file's name relative to the index.
using ShardMap = std::map<std::string, std::vector<std::string>>;

// read_index() reads the JSON of a *.index.json: {"weight_map": {tensor:
// file}}. A file outside of the index's folder is refused. Throws Failure.
ShardMap read_index(Bytes json);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_FILE_LIST_H_
