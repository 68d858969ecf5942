#include "bench/options.h"

#include <algorithm>

namespace swamp::bench {
namespace {

// The L3 cases need 8 MiB, and memory must not be smaller than that.
constexpr std::size_t kMinMemoryMib = 16;
constexpr std::size_t kMaxMemoryMib = 64 * 1024;
// The gradients of GPT-2 small in float32 are 475 MiB.
constexpr std::size_t kListLimitBytes = 512 * kMib;

std::size_t parse_memory_mib(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 6 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  const std::size_t mib = digits ? std::stoul(text) : 0;
  if (mib < kMinMemoryMib || mib > kMaxMemoryMib) {
    throw UsageError(
        "--memory-mib: \"" + text + "\"; expected a whole number from " +
        std::to_string(kMinMemoryMib) + " to " + std::to_string(kMaxMemoryMib));
  }
  return mib;
}

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

const char* const kOwnHelp =
    R"(swamp_bench: the roof of this machine and swamp's operators, side by side

  swamp_bench [--quick] [--table] [--memory-mib N] [--benchmark_...]

  --quick         the most telling cases only; within a minute, 0.5 GiB
  --table         print the table of ratios only, not every case
  --memory-mib N  size of the cases "in memory", in MiB (quick: 256, else 1024);
                  lists that are longer are left out
  --help          this text

Names of cases begin with roof/ unscale/ check/ norm/ cast/ accumulate/ step/
list/ scaling/ spawn/ threshold/ transfer/ checker/, for --benchmark_filter. The SWAMP_* variables choose the machine.

Google Benchmark's options (without --benchmark_format; the display is ours):
  --benchmark_filter=REGEX        --benchmark_list_tests
  --benchmark_min_time=SECONDS    --benchmark_repetitions=N
  --benchmark_out=FILE            --benchmark_out_format=json|console|csv
  --benchmark_color=auto|true|false
  --benchmark_enable_random_interleaving=true|false
  --benchmark_context=KEY=VALUE,...
)";

Options parse_options(int argc, char** argv) {
  Options options;
  std::size_t memory_mib = 0;
  std::vector<std::string> given;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--table") {
      options.table_only = true;
    } else if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else if (starts_with(argument, "--memory-mib=")) {
      memory_mib = parse_memory_mib(argument.substr(13));
    } else if (argument == "--memory-mib") {
      if (++i == argc) throw UsageError("--memory-mib: a number must follow");
      memory_mib = parse_memory_mib(argv[i]);
    } else if (starts_with(argument, "--benchmark_format")) {
      // The display is ours: saying nothing would print no JSON and no error.
      throw UsageError(argument + ": use --benchmark_out=FILE");
    } else {
      given.push_back(argument);
    }
  }
  options.memory_bytes = (memory_mib != 0 ? memory_mib
                          : options.quick ? 256
                                          : 1024) *
                         kMib;
  options.list_limit_bytes =
      memory_mib != 0 ? options.memory_bytes : kListLimitBytes;

  // Repetitions of all cases are shuffled: a noisy moment hits everyone, not
  // one side of a ratio. Many short ones: the fastest counts, and a short one
  // is more likely to be left alone. What the caller gave comes later, and
  // wins.
  options.rest = {"--benchmark_enable_random_interleaving=true"};
  options.rest.push_back(options.quick ? "--benchmark_repetitions=7"
                                       : "--benchmark_repetitions=9");
  options.rest.push_back(options.quick ? "--benchmark_min_time=0.002"
                                       : "--benchmark_min_time=0.01");
  options.rest.insert(options.rest.end(), given.begin(), given.end());
  return options;
}

}  // namespace swamp::bench
