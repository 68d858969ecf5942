#ifndef SWAMP_MASTER_CLI_SCAN_ZIP_DIRECTORY_H_
#define SWAMP_MASTER_CLI_SCAN_ZIP_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "master/cli/scan/byte_stream.h"

namespace swamp::cli {

// ZipMember is one file in a zip archive.
struct ZipMember {
  static constexpr std::uint16_t kStored = 0;
  static constexpr std::uint16_t kDeflated = 8;

  std::string name;
  std::uint16_t method = kStored;  // one of the two
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;  // unpacked, as the archive says
  Bytes packed;
};

// read_zip_directory() reads the central directory of an archive, zip64 or not.
// Strict where strictness stops tricks: nothing before, between or behind, what
// the directory and the members say of themselves agrees, members lie beside
// each other, none can unpack to more than deflate could have packed. So all of
// them together unpack to at most about 1032 times the file. Throws Failure.
std::vector<ZipMember> read_zip_directory(Bytes file);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_ZIP_DIRECTORY_H_
