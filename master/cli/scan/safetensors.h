#ifndef SWAMP_MASTER_CLI_SCAN_SAFETENSORS_H_
#define SWAMP_MASTER_CLI_SCAN_SAFETENSORS_H_

#include <map>
#include <string>
#include <vector>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// Metadata is the texts of a header that belong to no tensor.
using Metadata = std::map<std::string, std::string>;

// read_safetensors() reads a safetensors file: the header's length in 8 bytes,
// the header (JSON), the buffer, which the tensors must cover exactly. They
// come in the order of the buffer; `metadata` may be null. Throws Failure.
std::vector<FileTensor> read_safetensors(Bytes file,
                                         Metadata* metadata = nullptr);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_SAFETENSORS_H_
