// The names of the SWAMP_* environment variables, and a search of the
// environment for misspelt ones. Header-only, for the program swamp and for
// libswamp_sunway: libswamp itself never prints.
#ifndef SWAMP_RUNTIME_VARIABLES_H_
#define SWAMP_RUNTIME_VARIABLES_H_

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace swamp::runtime {

// Every SWAMP_* variable that any part of swamp reads: a test of
// tests/cli/info_test.cpp compares this list with the sources.
inline constexpr const char* kVariables[] = {
    // libswamp
    "SWAMP_BACKEND", "SWAMP_BIND", "SWAMP_CORE_GROUPS", "SWAMP_ISA",
    "SWAMP_LDM_BYTES", "SWAMP_MACHINE", "SWAMP_MPI_TIMEOUT",
    "SWAMP_SLAVES_PER_GROUP", "SWAMP_TRANSFER",
    // programs of swcc
    "SWAMP_CHECK_CACHE", "SWAMP_CHECK_HALT", "SWAMP_CHECK_MAIN_ACCESS",
    "SWAMP_CHECK_REPORT", "SWAMP_CHECK_SCHEDULES", "SWAMP_CHECK_SEED",
    "SWAMP_CHECK_SUPPRESS", "SWAMP_CHECK_TIMEOUT", "SWAMP_PREDICT",
    "SWAMP_TRACE",
    // scripts, the Python package and the benches
    "SWAMP_PEERS_LIBRARY", "SWAMP_TORCH", "SWAMP_TORCH_PYTHON"};

// edit_distance() returns the number of insertions, deletions, replacements and
// swaps of neighbouring characters that turn one text into the other.
inline std::size_t edit_distance(const std::string& from,
                                 const std::string& to) {
  const std::size_t width = to.size() + 1;
  std::vector<std::size_t> cost((from.size() + 1) * width);
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      std::size_t& here = cost[i * width + j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      const std::size_t* above = &cost[(i - 1) * width + j];
      here = std::min({above[0] + 1, cost[i * width + j - 1] + 1,
                       above[-1] + (from[i - 1] == to[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] &&
          from[i - 2] == to[j - 1]) {
        here = std::min(here, cost[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return cost.back();
}

// suggestion() returns " (did you mean NAME?)" for the known name that is
// nearest to a misspelt one or, if none is near, that contains it; "" if there
// is none. `prefix` is the length of the prefix that all names share.
template <class Names>
std::string suggestion(const std::string& misspelt, const Names& known,
                       std::size_t prefix = 0) {
  constexpr std::size_t kLongest = 100;  // the cost grows with the square
  constexpr std::size_t kShortest = 3;   // of a part to search for
  const std::string own = misspelt.substr(std::min(prefix, misspelt.size()));
  std::string nearest;
  std::size_t smallest = std::max<std::size_t>(own.size() / 3, 1) + 1;
  if (own.size() > kLongest) return "";
  for (const auto& each : known) {
    const std::string name = each;
    const std::size_t distance = edit_distance(misspelt, name);
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = name;
  }
  for (const auto& each : known) {
    if (!nearest.empty() || own.size() < kShortest) break;
    if (std::strstr(std::string(each).c_str(), own.c_str())) nearest = each;
  }
  return nearest.empty() ? "" : " (did you mean " + nearest + "?)";
}

// unknown_variables() returns the names in the environment that begin with
// SWAMP_ and are not in kVariables, each with its suggestion. Empty variables
// count as unset.
inline std::vector<std::string> unknown_variables() {
  constexpr char kPrefix[] = "SWAMP_";
  constexpr std::size_t kPrefixLength = sizeof kPrefix - 1;
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (std::strncmp(*entry, kPrefix, kPrefixLength) != 0 ||
        equals == nullptr || equals[1] == '\0') {
      continue;
    }
    const std::string name(*entry, static_cast<std::size_t>(equals - *entry));
    if (std::find(std::begin(kVariables), std::end(kVariables), name) ==
        std::end(kVariables)) {
      unknown.push_back(name + suggestion(name, kVariables, kPrefixLength));
    }
  }
  return unknown;
}

// unknown_variables_warning() returns a warning of one line, or "".
inline std::string unknown_variables_warning() {
  std::string names;
  for (const std::string& name : unknown_variables()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? ""
                       : "swamp: warning: environment: got " + names +
                             ", expected variables that swamp knows";
}

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_VARIABLES_H_
