#ifndef SWAMP_MASTER_CLI_SCAN_NPY_HEADER_H_
#define SWAMP_MASTER_CLI_SCAN_NPY_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "master/cli/scan/byte_stream.h"

namespace swamp::cli {

// NpyHeader is what stands before the elements of an npy file.
struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;  // of the header itself: the elements begin there
};

// read_npy_header() reads the header of format version 1, 2 or 3 from the start
// of a stream. Throws Failure.
NpyHeader read_npy_header(ByteStream& stream);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_NPY_HEADER_H_
