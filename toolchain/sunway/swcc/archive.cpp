#include "toolchain/sunway/swcc/archive.h"

#include <ar.h>

#include <cstdlib>
#include <cstring>

namespace swcc {

bool is_archive(const std::string& image) {
  return image.compare(0, SARMAG, ARMAG) == 0;
}

std::vector<Member> read_archive(const std::string& image) {
  std::vector<Member> members;
  std::string long_names;
  std::size_t at = SARMAG;
  while (at + sizeof(ar_hdr) <= image.size()) {
    ar_hdr header;
    std::memcpy(&header, image.data() + at, sizeof header);
    at += sizeof header;
    const std::string digits(header.ar_size, sizeof header.ar_size);
    const std::size_t bytes = std::strtoull(digits.c_str(), nullptr, 10);
    std::string name(header.ar_name, sizeof header.ar_name);
    name.erase(name.find_last_not_of(' ') + 1);
    const std::string content = image.substr(at, bytes);
    at += bytes + bytes % 2;
    if (name == "//") {
      long_names = content;
    } else if (name != "/" && name != "/SYM64/") {
      if (name[0] == '/') {
        name = long_names.substr(std::strtoull(name.c_str() + 1, nullptr, 10));
        name.erase(name.find('/'));
      } else if (!name.empty() && name.back() == '/') {
        name.pop_back();
      }
      members.push_back({name, content});
    }
  }
  return members;
}

}  // namespace swcc
