#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/predict/cost_model.h"
#include "runtime/variables.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/ldm.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/process.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway {
namespace {

// Sums are those of a core group.
struct Sums {
  predict::GroupTraffic traffic;
  std::uint64_t rma_requests = 0, rma_bytes = 0, syncs = 0;
};

Sums sums_of(const Group& group) {
  Sums sums;
  for (const auto& slave : group.slaves) {
    const Counters& c = slave->counters;
    sums.traffic.add(c);
    sums.rma_requests += c.rma_requests;
    sums.rma_bytes += c.rma_bytes;
    sums.syncs += c.syncs;
  }
  return sums;
}

}  // namespace

void print_prediction() {
  if (!has_machine()) return;
  const Machine& all = machine();
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    const Sums sums = sums_of(all.groups[i]);
    const predict::Traffic& c = sums.traffic.all;
    const std::uint64_t direct = c.direct_loads + c.direct_stores;
    if (c.get_requests + c.put_requests + sums.rma_requests + direct == 0) {
      continue;
    }
    const predict::Cycles cycles = predict::cycles_of(sums.traffic);
    // Only check mode counts them.
    std::string past_dma;
    if (all.check) {
      past_dma = ", PC2_GLD " + std::to_string(c.direct_loads) + ", PC3_GST " +
                 std::to_string(c.direct_stores);
    }
    char line[512];
    std::snprintf(
        line, sizeof line,
        "swamp: predict: cg %zu: PC3_REQ_DMA_GET %llu (%llu bytes, %llu "
        "lines), PC2_REQ_DMA_PUT %llu (%llu bytes, %llu whole lines, %llu "
        "partial)%s, RMA %llu (%llu bytes), syncs %llu, spawns %llu; transfers "
        "on SW26010-Pro: %.3f us overlapped, %.3f us one after another",
        i, static_cast<unsigned long long>(c.get_requests),
        static_cast<unsigned long long>(c.get_bytes),
        static_cast<unsigned long long>(c.lines_read),
        static_cast<unsigned long long>(c.put_requests),
        static_cast<unsigned long long>(c.put_bytes),
        static_cast<unsigned long long>(c.lines_full),
        static_cast<unsigned long long>(c.lines_partial), past_dma.c_str(),
        static_cast<unsigned long long>(sums.rma_requests),
        static_cast<unsigned long long>(sums.rma_bytes),
        static_cast<unsigned long long>(sums.syncs),
        static_cast<unsigned long long>(all.groups[i].spawns),
        cycles.overlapped / predict::kHertz * 1e6,
        cycles.one_after_another / predict::kHertz * 1e6);
    print_line(line);
  }
}

}  // namespace swamp::sunway

// Start and end of the program. Before main, in check mode: runs the
// instrumented copy of the program that swcc embedded in it. At the end: prints
// the summary; exit code 86 if there was a report.

// In the programs that swcc links. An image of size 0 means that this is the
// instrumented copy.
extern "C" {
extern const unsigned char swamp_check_image[] __attribute__((weak));
extern const unsigned char swamp_check_image_end[] __attribute__((weak));
}

namespace swamp::sunway {
namespace {

void run_checked_image(char** argv, char** environment) {
  if (swamp_check_image == nullptr) return;
  const auto bytes =
      static_cast<std::size_t>(swamp_check_image_end - swamp_check_image);
  if (bytes == 0) return;
  const int file = memfd_create(argv[0], MFD_CLOEXEC);
  std::size_t written = 0;
  while (file >= 0 && written < bytes) {
    const ssize_t count =
        write(file, swamp_check_image + written, bytes - written);
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  if (written == bytes) fexecve(file, argv, environment);
  fail(1, "cannot start the program in transfer mode check");
}

void at_end(int status, void*) {
  if (check::is_replay()) _exit(0);
  check::exiting();
  if (settings().predict) print_prediction();
  print_ldm_peaks();
  if (!settings().check) return;
  check::print_totals();
  if (status == 0 && check::reported()) {
    std::fflush(nullptr);
    _exit(kReportedExit);
  }
}

// Runs before the library's other constructors: it may replace the process.
__attribute__((constructor(101))) void start(int, char** argv,
                                             char** environment) {
  if (is_check_asked()) run_checked_image(argv, environment);
}

__attribute__((constructor)) void start_settings() {
  (void)settings();
  const std::string warning = runtime::unknown_variables_warning();
  if (!warning.empty()) print_line(warning);
  on_exit(&at_end, nullptr);
}

}  // namespace
}  // namespace swamp::sunway
