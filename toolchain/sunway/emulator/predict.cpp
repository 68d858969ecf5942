#include "toolchain/sunway/emulator/predict.h"

#include <cstdio>
#include <string>

#include "runtime/predict/cost_model.h"
#include "toolchain/sunway/emulator/output.h"
#include "toolchain/sunway/emulator/world.h"

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

void say_prediction() {
  if (!has_world()) return;
  const World& all = world();
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    const Sums sums = sums_of(all.groups[i]);
    const predict::Traffic& c = sums.traffic.all;
    const std::uint64_t direct = c.direct_loads + c.direct_stores;
    if (c.get_requests + c.put_requests + sums.rma_requests + direct == 0) {
      continue;
    }
    const predict::Cycles cycles = predict::cycles_of(sums.traffic);
    // Only check mode sees them.
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
    say(line);
  }
}

}  // namespace swamp::sunway
