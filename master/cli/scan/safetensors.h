#ifndef SWAMP_MASTER_CLI_SCAN_SAFETENSORS_H_
#define SWAMP_MASTER_CLI_SCAN_SAFETENSORS_H_

#include <vector>

#include "master/cli/scan/safetensors_header.h"
#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// read_safetensors() reads a safetensors file: the header's length in 8 bytes,
// the header (JSON), the buffer, which the tensors must cover exactly. They
// come in the order of the buffer; `metadata` may be null. Throws Failure.
std::vector<FileTensor> read_safetensors(Bytes file,
                                         Metadata* metadata = nullptr);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_SAFETENSORS_H_
