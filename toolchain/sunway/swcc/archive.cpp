#include "toolchain/sunway/swcc/archive.h"

#include <ar.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "toolchain/sunway/swcc/process.h"

namespace swcc {
namespace {

namespace fs = std::filesystem;

constexpr char kThin[] = "!<thin>\n";

ar_hdr header_at(const std::string& image, std::size_t at) {
  ar_hdr header{};
  if (at + sizeof header <= image.size()) {
    std::memcpy(&header, image.data() + at, sizeof header);
  }
  return header;
}

std::size_t bytes_of(const ar_hdr& header) {
  const std::string digits(header.ar_size, sizeof header.ar_size);
  return std::strtoull(digits.c_str(), nullptr, 10);
}

// outside() is a member of a thin archive: a file, or, if `origin` is not 0,
// what has its header there in the archive `name`.
Member outside(const std::string& file, const std::string& name,
               std::size_t origin) {
  const fs::path path = fs::path(file).parent_path() / name;
  Member member{path.filename().string(), read_file(path.string())};
  if (origin != 0) {
    const ar_hdr header = header_at(member.image, origin);
    member.image = member.image.substr(
        std::min(origin + sizeof header, member.image.size()),
        bytes_of(header));
  }
  return member;
}

}  // namespace

bool is_archive(const std::string& image) {
  return image.compare(0, SARMAG, ARMAG) == 0 ||
         image.compare(0, SARMAG, kThin) == 0;
}

std::vector<Member> read_archive(const std::string& file,
                                 const std::string& image) {
  const bool thin = image.compare(0, SARMAG, kThin) == 0;
  std::vector<Member> members;
  std::string long_names;
  std::size_t at = SARMAG;
  while (at + sizeof(ar_hdr) <= image.size()) {
    const ar_hdr header = header_at(image, at);
    at += sizeof header;
    const std::size_t bytes = bytes_of(header);
    std::string name(header.ar_name, sizeof header.ar_name);
    name.erase(name.find_last_not_of(' ') + 1);
    const bool is_file = name != "//" && name != "/" && name != "/SYM64/";
    const std::string content = is_file && thin ? "" : image.substr(at, bytes);
    if (!is_file || !thin) at += bytes + bytes % 2;
    if (name == "//") long_names = content;
    if (!is_file) continue;
    std::size_t origin = 0;
    if (name[0] == '/') {
      char* end = nullptr;
      const std::size_t begin = std::strtoull(name.c_str() + 1, &end, 10);
      if (*end == ':') origin = std::strtoull(end + 1, nullptr, 10);
      name = long_names.substr(std::min(begin, long_names.size()));
      name.erase(std::min(name.find("/\n"), name.size()));
    } else if (!name.empty() && name.back() == '/') {
      name.pop_back();
    }
    members.push_back(thin ? outside(file, name, origin)
                           : Member{name, content});
  }
  return members;
}

}  // namespace swcc
