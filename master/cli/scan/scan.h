// What `swamp scan` found.
#ifndef SWAMP_MASTER_CLI_SCAN_SCAN_H_
#define SWAMP_MASTER_CLI_SCAN_SCAN_H_

#include <string>
#include <vector>

#include "master/cli/scan/tensor_file.h"
#include "swamp/scan.h"

namespace swamp::cli {

// ScannedFile is a file and what was found in it.
struct ScannedFile {
  std::string path;
  std::vector<FileTensor> tensors;  // without their bytes
  std::vector<TensorStatistics> statistics;
  std::uint64_t bytes = 0;  // scanned
  double seconds = 0;
};

// ScanTotals is the sum over files.
struct ScanTotals {
  std::uint64_t files = 0;    // read to their end
  std::uint64_t errors = 0;   // lines on stderr
  std::uint64_t tensors = 0;  // with found, not scanned and clean ones
  std::uint64_t found = 0;    // with inf or nan
  std::uint64_t not_scanned = 0;
  std::uint64_t unsupported = 0;  // not scanned, and may hold inf or nan
  TensorStatistics sum;

  void add(const ScannedFile& file);
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_SCAN_H_
