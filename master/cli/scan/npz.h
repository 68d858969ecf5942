#ifndef SWAMP_MASTER_CLI_SCAN_NPZ_H_
#define SWAMP_MASTER_CLI_SCAN_NPZ_H_

#include <vector>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// read_npz() reads the headers of an npz: a zip archive of npy files. Throws
// Failure.
std::vector<FileTensor> read_npz(Bytes file);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_NPZ_H_
