// swamp_bench: Google Benchmark cases of swamp's operators and of the roofline
// of this machine. bench/table.py makes tables of ratios from its JSON.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench/bench.h"
#include "swamp/c_api.h"

namespace swamp::bench {
namespace {

std::size_t memory_mib = 512;
bool critical_path = false;  // --critical_path

constexpr char kOption[] = "--memory_mib=";
constexpr unsigned long kMinMib = 16;  // the cases of L3 need 8
constexpr unsigned long kMaxMib = 64 * 1024;
constexpr std::size_t kCriticalPathMib = 2304;  // of GPT-2's AdamW

void print_help() {
  benchmark::PrintDefaultHelp();
  std::printf(
      "          [%s<size of the cases in memory; longer lists are left out; "
      "default 512>]\n"
      "          [--critical_path: only the cases critical_path/, operators on "
      "2 to 192 slaves]\n",
      kOption);
}

// Takes our own options. Prints an error and returns false for a value out of
// range.
bool take_options(int& argc, char** argv) {
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--critical_path") == 0) {
      critical_path = true;
      continue;
    }
    if (std::strncmp(argv[i], kOption, sizeof kOption - 1) != 0) {
      argv[kept++] = argv[i];
      continue;
    }
    const char* const value = argv[i] + sizeof kOption - 1;
    char* end = nullptr;
    memory_mib = std::strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end != '\0' || memory_mib < kMinMib ||
        memory_mib > kMaxMib) {
      std::fprintf(stderr,
                   "swamp_bench: --memory_mib: got \"%s\", expected a whole "
                   "number from %lu to %lu\n",
                   value, kMinMib, kMaxMib);
      return false;
    }
  }
  argc = kept;
  return true;
}

void add_context() {
  const MachineInfo info = Machine::default_machine().info();
  const auto add_fact = [](const char* key, const std::string& value) {
    benchmark::AddCustomContext(key, value);
  };
  add_fact("cpu", info.cpu);
  add_fact("machine", info.chosen.machine + " " +
                          std::to_string(info.chosen.core_groups) + "x" +
                          std::to_string(info.chosen.slaves_per_group) + ", " +
                          info.chosen.backend + ", " + info.chosen.transfer +
                          ", " + info.chosen.isa);
  add_fact("memory_mib", std::to_string(memory_mib));
  add_fact("threads", std::to_string(all_threads()));
  add_fact("version", swamp_version());
#if defined(__clang__)
  add_fact("compiler", "clang " __clang_version__);
#else
  add_fact("compiler", "gcc " __VERSION__);
#endif
}

void register_all() {
  register_roofline();
  register_unscale();
  register_passes();
  register_rows();
  register_products();
  register_transfer();
  register_spawn();
  register_threshold();
  register_claims();
  register_tuning();
}

int run(int argc, char** argv) {
  constexpr int kBadUse = 2;
  benchmark::Initialize(&argc, argv, print_help);
  if (!take_options(argc, argv) ||
      benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return kBadUse;
  }
  add_context();
  if (critical_path) {
    memory_mib = std::max(memory_mib, kCriticalPathMib);
    register_critical_path();
  } else {
    register_all();
  }
  // Google Benchmark has printed why nothing ran.
  const int code = benchmark::RunSpecifiedBenchmarks() == 0 ? kBadUse : 0;
  benchmark::Shutdown();
  return code;
}

}  // namespace

std::size_t memory_bytes() { return memory_mib * kMib; }

}  // namespace swamp::bench

int main(int argc, char** argv) {
  try {
    return swamp::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "swamp_bench: %s\n", error.what());
    return 2;
  }
}
