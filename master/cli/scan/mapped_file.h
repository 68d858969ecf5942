#ifndef SWAMP_MASTER_CLI_SCAN_MAPPED_FILE_H_
#define SWAMP_MASTER_CLI_SCAN_MAPPED_FILE_H_

#include <string>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

// MappedFile is a regular file in memory, read-only.
//
// Reading a page that cannot be read, because the file was truncated or the
// disk failed, raises SIGBUS. Our handler maps zeros there and sets a flag, so
// that the reading thread continues; check() then throws, and nothing that was
// read is used. A SIGBUS elsewhere ends the program as usual.
// There is one MappedFile at a time.
class MappedFile {
 public:
  // Throws Failure, without the path, if it cannot be opened.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const noexcept { return bytes_; }

  // check() throws Failure if the file has shrunk since it was opened, or if a
  // part of it could not be read.
  void check() const;

 private:
  Bytes bytes_;
  int descriptor_ = -1;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_MAPPED_FILE_H_
