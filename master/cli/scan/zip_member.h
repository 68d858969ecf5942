#ifndef SWAMP_MASTER_CLI_SCAN_ZIP_MEMBER_H_
#define SWAMP_MASTER_CLI_SCAN_ZIP_MEMBER_H_

#include <memory>

#include "master/cli/scan/byte_stream.h"
#include "master/cli/scan/zip_directory.h"

namespace swamp::cli {

// open_member() unpacks a member as it is read. The stream throws Failure where
// the member is broken, longer or shorter than it says, or has another CRC. A
// build without zlib takes stored members only and checks no CRC.
std::unique_ptr<ByteStream> open_member(const ZipMember& member);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_ZIP_MEMBER_H_
