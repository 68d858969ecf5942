// `swamp replay`: traces of loss scalers through ours.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/replay/trace.h"

namespace swamp::cli {
namespace {

struct Counts {
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;
};

void replay_line(const std::string& line, const ReplayOptions& options,
                 Counts& counts) {
  const std::optional<Trace> trace = read_trace(line);
  if (!trace) {
    ++counts.skipped;
    return;
  }
  const Replay replay = play(*trace);
  if (!options.check) {
    print(replay_json(*trace, replay) + "\n");
    return;
  }
  const std::string differs = difference(line, *trace, replay);
  ++(differs.empty() ? counts.passed : counts.failed);
  if (!differs.empty()) {
    print(fmt::format("FAILED {}: {}\n", trace->id, differs));
  }
}

void replay_file(const std::string& path, const ReplayOptions& options,
                 Counts& counts) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::uint64_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    try {
      replay_line(line, options, counts);
    } catch (const UsageError&) {
      throw;
    } catch (const Failure& failure) {
      throw Failure(fmt::format("{}:{}: {}", path, number, failure.what()));
    }
  }
  if (!file.eof()) {
    throw Failure(fmt::format("{}:{}: cannot be read: {}", path, number + 1,
                              std::strerror(errno != 0 ? errno : EIO)));
  }
}

}  // namespace

int run_replay(const ReplayOptions& options) {
  Counts counts;
  for (const std::string& path : options.files) {
    replay_file(path, options, counts);
  }
  if (!options.check) {
    if (counts.skipped != 0) {
      print_error(fmt::format("swamp: records of other kinds skipped: {}",
                              counts.skipped));
    }
    return EXIT_SUCCESS;
  }
  if (counts.skipped != 0) print(fmt::format("{} skipped\n", counts.skipped));
  print(fmt::format("{} passed, {} failed\n", counts.passed, counts.failed));
  return counts.failed == 0 ? EXIT_SUCCESS : kExitFound;
}

}  // namespace swamp::cli
