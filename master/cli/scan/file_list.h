#ifndef SWAMP_MASTER_CLI_SCAN_FILE_LIST_H_
#define SWAMP_MASTER_CLI_SCAN_FILE_LIST_H_

#include <functional>
#include <string>
#include <vector>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// ScanFile is one file to scan.
struct ScanFile {
  std::string path;
  FileFormat format;
  // The tensors that the file must hold, because an index says so.
  std::vector<std::string> expected;
};

// list_files() is what the arguments of scan name: files, in folders the
// *.safetensors, *.npy and *.npz, by name, of an index its shards; a shard of
// an index in the same folder comes once. What is wrong with an argument goes
// to `complain`, and the others are listed.
std::vector<ScanFile> list_files(
    const std::vector<std::string>& arguments, bool recursive,
    const std::function<void(const std::string& text)>& complain);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_FILE_LIST_H_
