#ifndef SWAMP_MASTER_CLI_SCAN_NPZ_H_
#define SWAMP_MASTER_CLI_SCAN_NPZ_H_

#include <memory>
#include <vector>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// read_npz() reads the headers of an npz: a zip archive of npy files. Throws
// Failure.
std::vector<FileTensor> read_npz(Bytes file);

// open_member() begins to unpack a member. The stream throws Failure if the
// member is broken, longer or shorter than it says, or has another CRC.
std::unique_ptr<ByteStream> open_member(
    const std::shared_ptr<const NpzMember>& member);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_NPZ_H_
