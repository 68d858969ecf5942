#ifndef SWAMP_TOOLCHAIN_SWCC_ARCHIVE_H_
#define SWAMP_TOOLCHAIN_SWCC_ARCHIVE_H_

#include <string>
#include <vector>

namespace swcc {

struct Member {
  std::string name;
  std::string image;
};

bool is_archive(const std::string& image);
// read_archive() returns the members that are files, in order. The members of a
// thin archive are separate files, named relative to the folder of `file`. `ar
// x` cannot replace this: it refuses thin archives, and extracts members with
// equal names onto each other.
std::vector<Member> read_archive(const std::string& file,
                                 const std::string& image);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ARCHIVE_H_
