#ifndef SWAMP_MASTER_CLI_SCAN_ZIP_END_H_
#define SWAMP_MASTER_CLI_SCAN_ZIP_END_H_

#include <cstddef>
#include <cstdint>

#include "master/cli/scan/byte_stream.h"

namespace swamp::cli {

// ZipEnd is where an archive's central directory lies, and how many entries it
// has.
struct ZipEnd {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t entries;
};

inline constexpr std::size_t kZipEntryBytes = 46;  // of an entry, without names

// read_zip_end() reads the records at the end of an archive. The directory that
// they describe must reach from its offset to them. Throws Failure.
ZipEnd read_zip_end(Bytes file);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_ZIP_END_H_
