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
// read_archive() returns the members that are files, in order. Those of a thin
// archive lie in files of their own, named from the folder of `file`.
std::vector<Member> read_archive(const std::string& file,
                                 const std::string& image);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ARCHIVE_H_
