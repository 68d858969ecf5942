// swamp_bench: measures the roof of this machine and swamp's operators side by
// side, and ends with a table of ratios.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/suite.h"
#include "bench/timed.h"

namespace swamp::bench {
namespace {

constexpr int kBadUse = 2;

// Google Benchmark takes its options out of the command line; what is left,
// nobody knows.
void initialize_benchmark(const Options& options, char* program) {
  std::vector<std::string> texts = options.rest;
  std::vector<char*> arguments{program};
  for (std::string& text : texts) arguments.push_back(text.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (count > 1) {
    throw UsageError("unknown option \"" + std::string(arguments[1]) + "\"");
  }
}

// EarlyErrors holds what Google Benchmark says before the first case, to put
// one line of ours in its place; where it exits by itself, it is still said.
struct EarlyErrors {
  std::ostringstream stream;
  ~EarlyErrors() { std::fputs(stream.str().c_str(), stderr); }
};

EarlyErrors& early_errors() {
  static EarlyErrors errors;
  return errors;
}

int no_case() {
  std::ostringstream& held = early_errors().stream;
  // Else it was no regular expression, or there is nothing to list.
  if (held.str().rfind("Failed to match", 0) == 0) {
    held.str("");
    fmt::print(stderr, "swamp_bench: no case matches --benchmark_filter={}\n",
               benchmark::GetBenchmarkFilter());
  }
  return kBadUse;
}

std::string left_out_text(int count) {
  if (count == 0) return "";
  return fmt::format(
      "swamp_bench: the machine is busy: {} repetition{} left out to end "
      "within a minute\n",
      count, count == 1 ? "" : "s");
}

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::fputs(kOwnHelp, stdout);
    return 0;
  }
  initialize_benchmark(options, argv[0]);
  // Beside the arrays of a pass there is room between them.
  limit_shared_memory(
      std::max(options.memory_bytes + kMib, options.list_limit_bytes));

  const Facts facts = machine_facts();
  for (const auto& [key, value] : facts) {
    benchmark::AddCustomContext(key, value);
  }
  Suite suite(options);
  add_unscale(suite);
  add_passes(suite);
  add_lists(suite);
  add_scaling(suite);
  add_transfer(suite);
  add_checker(suite);
  add_spawn(suite);
  add_athread(suite);
  add_threshold(suite);
  add_tuning(suite);

  if (options.quick) {
    deadline = std::chrono::steady_clock::now() + std::chrono::seconds(45);
  }
  Reporter reporter(suite, facts);
  reporter.SetErrorStream(&early_errors().stream);
  if (benchmark::RunSpecifiedBenchmarks(&reporter) == 0) return no_case();
  const std::string warning = left_out_text(reporter.left_out());
  std::fputs(warning.c_str(), stderr);
  const std::string table = table_text(suite, suite.results());
  if (!table.empty()) {
    // Once more under the table, which may be all that somebody keeps.
    fmt::print("{}{}{}", options.table_only ? "" : "\n", table, warning);
  }
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace swamp::bench

int main(int argc, char** argv) {
  try {
    return swamp::bench::run(argc, argv);
  } catch (const swamp::bench::UsageError& error) {
    std::fprintf(stderr, "swamp_bench: %s; see swamp_bench --help\n",
                 error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "swamp_bench: %s\n", error.what());
  }
  return swamp::bench::kBadUse;
}
