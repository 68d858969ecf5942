#include "runtime/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <locale>

namespace swamp::runtime {
namespace {

// read_pair() reads two numbers, which version 2 has in one file and version 1
// in two. False where they are not there, or "max", or -1: no limit.
bool read_pair(const std::string& first, const std::string& second,
               double& quota, double& period) {
  const auto open = [](const std::string& name) {
    std::ifstream file(name);
    file.imbue(std::locale::classic());  // the program's may group digits
    return file;
  };
  std::ifstream file = open(first);
  if (!(file >> quota)) return false;
  if (!second.empty()) file = open(second);
  return (file >> period) && quota > 0 && period > 0;
}

// lowest_limit() looks at a cgroup and at all that it lies in.
double lowest_limit(const std::string& base, std::string path,
                    const char* quota_file, const char* period_file) {
  double lowest = INFINITY;
  for (;;) {
    const std::string folder = base + path + "/";
    double quota = 0;
    double period = 0;
    if (read_pair(folder + quota_file,
                  *period_file == '\0' ? "" : folder + period_file, quota,
                  period)) {
      lowest = std::min(lowest, quota / period);
    }
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return lowest;
    path.resize(slash);
  }
}

}  // namespace

std::uint32_t cgroup_cpu_limit(const std::string& membership,
                               const std::string& mount) {
  std::ifstream file(membership);
  double lowest = INFINITY;
  // A line is "hierarchy:controllers:path"; version 2's has no controllers.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,") {
      lowest = std::min(lowest, lowest_limit(mount, path, "cpu.max", ""));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      lowest = std::min(lowest,
                        lowest_limit(mount + "/cpu", path, "cpu.cfs_quota_us",
                                     "cpu.cfs_period_us"));
    }
  }
  if (!(lowest < 65536)) return 0;
  return static_cast<std::uint32_t>(std::max(1.0, std::ceil(lowest)));
}

}  // namespace swamp::runtime
