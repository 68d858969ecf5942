#ifndef SWAMP_MASTER_CLI_SCAN_OPTIONS_H_
#define SWAMP_MASTER_CLI_SCAN_OPTIONS_H_

#include <string>
#include <vector>

namespace swamp::cli {

struct ScanOptions {
  std::vector<std::string> files;  // and folders
  bool all = false;
  bool json = false;
  bool recursive = false;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_OPTIONS_H_
