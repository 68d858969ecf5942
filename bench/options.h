#ifndef SWAMP_BENCH_OPTIONS_H_
#define SWAMP_BENCH_OPTIONS_H_

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace swamp::bench {

inline constexpr std::size_t kMib = std::size_t{1} << 20;

// Options is what swamp_bench itself understands; the rest of the command line
// is Google Benchmark's.
struct Options {
  bool quick = false;
  bool table_only = false;
  bool help = false;
  std::size_t memory_bytes = 0;      // of the cases "in memory"
  std::size_t list_limit_bytes = 0;  // longer lists are left out
  std::vector<std::string> rest;     // for Google Benchmark, defaults first
};

// UsageError is what the caller mistyped.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// parse_options() takes its own options out of the command line. Throws
// UsageError.
Options parse_options(int argc, char** argv);

extern const char* const kOwnHelp;

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_OPTIONS_H_
