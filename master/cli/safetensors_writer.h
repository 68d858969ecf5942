#ifndef SWAMP_MASTER_CLI_SAFETENSORS_WRITER_H_
#define SWAMP_MASTER_CLI_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "master/cli/scan/safetensors.h"

namespace swamp::cli {

// TensorPlace is a tensor that is to be written, and where its bytes, lowest
// first, are now.
struct TensorPlace {
  std::string name;
  const char* dtype;  // as "F32"
  std::vector<std::uint64_t> shape;
  Bytes bytes;
};

// write_safetensors() is the content of a safetensors file. Its buffer begins
// at a multiple of 8 bytes, as the reference's does.
std::string write_safetensors(const Metadata& metadata,
                              const std::vector<TensorPlace>& tensors);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SAFETENSORS_WRITER_H_
