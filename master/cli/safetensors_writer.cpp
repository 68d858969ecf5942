#include "master/cli/safetensors_writer.h"

#include "master/cli/json.h"

namespace swamp::cli {

std::string write_safetensors(const Metadata& metadata,
                              const std::vector<TensorPlace>& tensors) {
  std::string header = safetensors_header_json(metadata, tensors);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(std::uint64_t{header.size()} >> shift & 0xff);
  }
  file += header;
  for (const TensorPlace& tensor : tensors) file += tensor.bytes;
  return file;
}

}  // namespace swamp::cli
