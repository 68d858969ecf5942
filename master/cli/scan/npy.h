#ifndef SWAMP_MASTER_CLI_SCAN_NPY_H_
#define SWAMP_MASTER_CLI_SCAN_NPY_H_

#include <string>

#include "master/cli/scan/npy_header.h"
#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// read_npy() reads an npy file of one array. Throws Failure.
FileTensor read_npy(Bytes file);

// npy_tensor() is the tensor that a header describes, in an npy of `npy_bytes`
// bytes, header included; where its elements are is left open. Throws Failure
// where the size is not exactly that.
FileTensor npy_tensor(const NpyHeader& header, std::string name,
                      std::uint64_t npy_bytes);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_NPY_H_
