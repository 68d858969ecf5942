#include "runtime/sunway/predict.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "runtime/sunway/output.h"
#include "runtime/sunway/world.h"

namespace swamp::sunway {
namespace {

// Measured on SW39000, 64 slaves (shared/reference/sunway.md, 6), in cycles of
// 2.25 GHz: a 128-byte line read, one written whole, one written in part.
constexpr double kReadLine = 6.03;
constexpr double kWholeLine = 8.15;
constexpr double kPartialLine = 50.0;
constexpr double kGetLatency = 740;  // of one get among 64
constexpr double kHertz = 2.25e9;

// Sums are those of a core group, and its slowest slave.
struct Sums {
  Counters all;
  std::uint64_t slowest = 0;    // cycles of its transfers, one after another
  std::uint64_t most_gets = 0;  // of one slave
};

Sums sums_of(const Group& group) {
  Sums sums;
  for (const auto& slave : group.slaves) {
    const Counters& c = slave->counters;
    sums.all.get_requests += c.get_requests;
    sums.all.put_requests += c.put_requests;
    sums.all.rma_requests += c.rma_requests;
    sums.all.get_bytes += c.get_bytes;
    sums.all.put_bytes += c.put_bytes;
    sums.all.rma_bytes += c.rma_bytes;
    sums.all.lines_read += c.lines_read;
    sums.all.lines_full += c.lines_full;
    sums.all.lines_partial += c.lines_partial;
    sums.all.syncs += c.syncs;
    sums.slowest = std::max(sums.slowest, c.get_latency + c.put_latency);
    sums.most_gets = std::max(sums.most_gets, c.get_requests);
  }
  return sums;
}

}  // namespace

void say_prediction() {
  if (!has_world()) return;
  const World& all = world();
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    const Sums sums = sums_of(all.groups[i]);
    const Counters& c = sums.all;
    if (c.get_requests + c.put_requests + c.rma_requests == 0) continue;
    const double memory = kReadLine * static_cast<double>(c.lines_read) +
                          kWholeLine * static_cast<double>(c.lines_full) +
                          kPartialLine * static_cast<double>(c.lines_partial);
    const double latency = static_cast<double>(sums.slowest);
    const double waits = kGetLatency * static_cast<double>(sums.most_gets);
    char line[512];
    std::snprintf(
        line, sizeof line,
        "swamp: predict: cg %zu: PC3_REQ_DMA_GET %llu (%llu bytes, %llu "
        "lines), PC2_REQ_DMA_PUT %llu (%llu bytes, %llu whole lines, %llu "
        "partial), RMA %llu (%llu bytes), syncs %llu; transfers on "
        "SW26010-Pro: %.3f us overlapped, %.3f us one after another",
        i, static_cast<unsigned long long>(c.get_requests),
        static_cast<unsigned long long>(c.get_bytes),
        static_cast<unsigned long long>(c.lines_read),
        static_cast<unsigned long long>(c.put_requests),
        static_cast<unsigned long long>(c.put_bytes),
        static_cast<unsigned long long>(c.lines_full),
        static_cast<unsigned long long>(c.lines_partial),
        static_cast<unsigned long long>(c.rma_requests),
        static_cast<unsigned long long>(c.rma_bytes),
        static_cast<unsigned long long>(c.syncs),
        std::max(memory, latency) / kHertz * 1e6,
        std::max(memory + waits, latency) / kHertz * 1e6);
    say(line);
  }
}

}  // namespace swamp::sunway
