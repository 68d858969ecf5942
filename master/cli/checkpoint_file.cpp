// Whether a checkpoint is there, and whether it is of the run that is resumed.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "master/cli/atomic_file.h"
#include "master/cli/checkpoint.h"
#include "master/cli/command.h"

namespace swamp::cli {

bool read_checkpoint(const std::string& path, std::string& content) {
  if (!file_exists("--checkpoint", path)) return false;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  content.assign(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || file.bad()) {
    throw Failure(fmt::format("cannot read: {}", std::strerror(errno)));
  }
  return true;
}

void check_options(const std::map<std::string, std::string>& made_with,
                   const std::map<std::string, std::string>& given) {
  const auto refuse = [](const std::string& name, const std::string& before,
                         const std::string& now) {
    throw Failure(
        fmt::format("made with {} {}, expected {}", name, before, now));
  };
  // First what both have: of another scaler the other options follow.
  for (const auto& [name, before] : made_with) {
    const auto found = given.find(name);
    if (found != given.end() && found->second != before) {
      refuse(name, before, found->second);
    }
  }
  for (const auto& [name, before] : made_with) {
    if (given.count(name) == 0) refuse(name, before, "none");
  }
  for (const auto& [name, now] : given) {
    if (made_with.count(name) == 0) refuse(name, "none", now);
  }
}

}  // namespace swamp::cli
