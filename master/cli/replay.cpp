// `swamp replay`: traces of loss scalers through ours.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

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

// A trace of the most steps that read_trace() allows needs less.
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 27;

[[noreturn]] void fail_read() {
  throw Failure(fmt::format("cannot be read: {}",
                            std::strerror(errno != 0 ? errno : EIO)));
}

// read_line() returns false at the end of the file. A line is bounded, because
// the file may be a device that never ends it.
bool read_line(std::FILE* file, std::string& line) {
  line.clear();
  errno = 0;
  int character = getc_unlocked(file);
  if (character == EOF && std::ferror(file) == 0) return false;
  for (; character != EOF && character != '\n';
       character = getc_unlocked(file)) {
    if (line.size() == kMaxLineBytes) {
      throw Failure(fmt::format("got a longer line, expected at most {} bytes",
                                kMaxLineBytes));
    }
    line += static_cast<char>(character);
  }
  if (std::ferror(file) != 0) fail_read();
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

void replay_file(const std::string& path, const ReplayOptions& options,
                 Counts& counts) {
  std::uint64_t number = 1;
  try {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        std::fopen(path.c_str(), "rbe"), &std::fclose);
    if (!file) fail_read();
    for (std::string line; read_line(file.get(), line); ++number) {
      if (!line.empty()) replay_line(line, options, counts);
    }
  } catch (const Failure& failure) {
    throw Failure(fmt::format("{}:{}: {}", path, number, failure.what()));
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
