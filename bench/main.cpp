// swamp_bench: measures the roof of this machine and swamp's operators side by
// side, and ends with a table of ratios.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
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

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::fputs(kOwnHelp, stdout);
    std::fputs("\nGoogle Benchmark's options:\n", stdout);
    std::fflush(stdout);
    benchmark::PrintDefaultHelp();
    return 0;
  }
  initialize_benchmark(options, argv[0]);
  limit_shared_memory(std::max(options.memory_bytes, options.list_limit_bytes));

  const Facts facts = machine_facts();
  for (const auto& [key, value] : facts) {
    benchmark::AddCustomContext(key, value);
  }
  Suite suite(options);
  add_unscale(suite);
  add_lists(suite);
  add_transfer(suite);
  add_spawn(suite);
  add_threshold(suite);
  add_tuning(suite);

  if (options.quick) {
    deadline = std::chrono::steady_clock::now() + std::chrono::seconds(45);
  }
  Reporter reporter(suite, facts);
  if (benchmark::RunSpecifiedBenchmarks(&reporter) == 0) return kBadUse;
  if (reporter.left_out() != 0) {
    fmt::print(stderr,
               "swamp_bench: the machine is busy: {} repetitions left out to "
               "end within a minute\n",
               reporter.left_out());
  }
  const std::string table = table_text(suite, suite.results());
  if (!table.empty()) {
    fmt::print("{}{}", options.table_only ? "" : "\n", table);
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
