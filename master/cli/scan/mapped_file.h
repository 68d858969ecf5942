#ifndef SWAMP_MASTER_CLI_SCAN_MAPPED_FILE_H_
#define SWAMP_MASTER_CLI_SCAN_MAPPED_FILE_H_

#include <string>

#include "master/cli/scan/byte_stream.h"

namespace swamp::cli {

// MappedFile is a regular file in memory, read-only.
//
// A page that is gone when it is read, because somebody has cut the file short,
// is a SIGBUS. Our handler puts zeros there and notes it, so that the reading
// thread, whichever it is, goes on; check() then says that the file shrank, and
// nothing that was read is used. A SIGBUS elsewhere ends the program as ever.
// There is one MappedFile at a time.
class MappedFile {
 public:
  // Throws Failure, without the path, where it cannot be opened.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const noexcept { return bytes_; }

  // check() throws Failure where the file has shrunk since it was opened.
  void check() const;

 private:
  Bytes bytes_;
  int descriptor_ = -1;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_MAPPED_FILE_H_
