#ifndef SWAMP_MASTER_CLI_SCAN_SAFETENSORS_HEADER_H_
#define SWAMP_MASTER_CLI_SCAN_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "master/cli/scan/byte_stream.h"

namespace swamp::cli {

// SafetensorsEntry is what a header says of one tensor, unchecked.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the buffer
  std::uint64_t end = 0;
};

// Metadata is the texts of a header that belong to no tensor.
using Metadata = std::map<std::string, std::string>;

// parse_safetensors_header() reads the JSON of a header, and, if it is not
// null, into `metadata` its texts. Throws Failure where it is not of the form
// that every header has.
std::vector<SafetensorsEntry> parse_safetensors_header(
    Bytes json, Metadata* metadata = nullptr);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_SAFETENSORS_HEADER_H_
