// What `swamp scan` prints, for people.
#ifndef SWAMP_MASTER_CLI_SCAN_REPORT_H_
#define SWAMP_MASTER_CLI_SCAN_REPORT_H_

#include <string>
#include <vector>

#include "master/cli/scan/tensor_file.h"
#include "swamp/scan.h"

namespace swamp::cli {

// ScannedFile is a file and what was found in it.
struct ScannedFile {
  std::string path;
  std::vector<FileTensor> tensors;  // their bytes are no longer there
  std::vector<TensorStatistics> statistics;
  std::uint64_t bytes = 0;  // scanned
  double seconds = 0;
};

// ScanTotals is the sum over files.
struct ScanTotals {
  std::uint64_t files = 0;    // that were read to their end
  std::uint64_t errors = 0;   // lines on stderr
  std::uint64_t tensors = 0;  // found, not_scanned and clean ones
  std::uint64_t found = 0;    // with inf or nan
  std::uint64_t not_scanned = 0;
  std::uint64_t unsupported = 0;  // of not_scanned
  TensorStatistics sum;

  void add(const ScannedFile& file);
};

// is_unsupported() returns whether a tensor may hold inf or nan that swamp
// cannot find.
bool is_unsupported(const FileTensor& tensor) noexcept;

// file_text() is a line for every tensor that has inf or nan or is not scanned,
// with `all` for every one, and a line for the file.
std::string file_text(const ScannedFile& file, bool all);

// speed_text() is "2.1 GB in 0.2 s, 10.5 GB/s".
std::string speed_text(std::uint64_t bytes, double seconds);

// printable() has no control characters: names come from files.
std::string printable(std::string text);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_REPORT_H_
