// threshold/: from what traffic on a spawn pays. Every list is measured with
// the spawn forced and with the master alone; Tuning::spawn_traffic_bytes
// should lie where the first begins to win.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "master/partition.h"
#include "runtime/machine_impl.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kKib = 1024;
constexpr std::size_t kTraffic[] = {
    8 * kKib,   16 * kKib,   32 * kKib,   48 * kKib,  64 * kKib,  80 * kKib,
    96 * kKib,  128 * kKib,  192 * kKib,  256 * kKib, 384 * kKib, 512 * kKib,
    768 * kKib, 1024 * kKib, 2048 * kKib, 4096 * kKib};

// A list of this many elements that can be partitioned into as many equal parts
// as any: tensors of just over half a grain, so that none shares one. A list
// that is one grain cannot be split at all, whatever the threshold.
std::vector<std::size_t> splittable_counts(std::size_t elements) {
  constexpr std::size_t kMore = master::kBlockElements / 2 + 16;
  const std::size_t pairs = elements / (2 * kMore);
  if (pairs == 0) return {};
  return std::vector<std::size_t>(2 * pairs, elements / (2 * pairs));
}

// Data is warm when the call before left it in the caches, cold when it comes
// from memory: what backward() left is somewhere between.
std::string threshold_name(const Dtype& dtype, bool warm, std::size_t traffic,
                           bool alone) {
  return fmt::format("threshold/{}/{}/traffic:{}/{}", dtype.name,
                     warm ? "warm" : "cold", traffic,
                     alone ? "alone" : "spawn");
}

Machine& threshold_machine(bool alone) {
  static Machine spawning;
  static Machine working_alone;
  spawning.impl().tuning.spawn_traffic_bytes = 0;
  working_alone.impl().tuning.spawn_traffic_bytes = ~std::size_t{0};
  return alone ? working_alone : spawning;
}

// As many lists as lie side by side in memory; a few thousand are enough to
// have forgotten the first.
std::vector<List> cold_lists(const Dtype& dtype,
                             const std::vector<std::size_t>& counts,
                             std::size_t memory_bytes) {
  constexpr std::size_t kMost = 4096;
  const std::size_t bytes = list_bytes(dtype, counts);
  const std::size_t most = std::min(kMost, memory_bytes / bytes);
  std::vector<List> lists;
  for (std::size_t i = 0; i < most; ++i) {
    lists.push_back(make_list(dtype, counts, i * bytes));
  }
  return lists;
}

void add_case(Suite& suite, const Dtype& dtype, bool warm, std::size_t traffic,
              bool alone) {
  const int threads = thread_counts().back();
  const std::size_t memory_bytes = suite.options().memory_bytes;
  const std::vector<std::size_t> counts =
      splittable_counts(traffic / 2 / dtype.bytes);
  suite.add(
      threshold_name(dtype, warm, traffic, alone), threads,
      {2.0 * static_cast<double>(element_bytes(dtype, counts)), 0},
      [=](benchmark::State& state) {
        Machine& machine = threshold_machine(alone);
        if (warm) {
          run_operator(state, machine, make_list(dtype, counts), kFlipSign);
        } else {
          run_operator(state, machine, cold_lists(dtype, counts, memory_bytes),
                       kFlipSign);
        }
      });
}

// The smallest traffic from which on the spawn wins, at every larger one too.
Row crossing_row(const Dtype& dtype, bool warm,
                 std::vector<std::size_t> traffic) {
  return [=](const Results& results) -> std::optional<Line> {
    const auto tuned =
        static_cast<double>(runtime::Tuning{}.spawn_traffic_bytes);
    Line line;
    line.what = std::string(dtype.name) + (warm ? " warm" : " cold") +
                ", spawn wins from";
    line.against = "Tuning has " + bytes_text(tuned);
    std::size_t crossing = 0;
    for (const std::size_t bytes : traffic) {
      const std::string spawn_name = threshold_name(dtype, warm, bytes, false);
      const std::string alone_name = threshold_name(dtype, warm, bytes, true);
      if (results.too_few({spawn_name, alone_name})) {
        line.aim = kTooFew;
        return line;
      }
      const auto spawn = results.find(spawn_name);
      const auto alone = results.find(alone_name);
      if (!spawn || !alone) return std::nullopt;
      if (spawn->seconds >= alone->seconds) {
        crossing = 0;
      } else if (crossing == 0) {
        crossing = bytes;
      }
    }
    line.measured = crossing == 0 ? "nowhere yet"
                                  : bytes_text(static_cast<double>(crossing));
    if (crossing != 0) line.ratio = static_cast<double>(crossing) / tuned;
    return line;
  };
}

void add_sweep(Suite& suite, const Dtype& dtype, bool warm) {
  std::vector<std::size_t> measured;
  for (const std::size_t traffic : kTraffic) {
    if (splittable_counts(traffic / 2 / dtype.bytes).empty()) continue;
    const bool doubled = (traffic & (traffic - 1)) == 0;
    if (suite.quick() && !warm && !doubled) continue;
    measured.push_back(traffic);
    add_case(suite, dtype, warm, traffic, false);
    add_case(suite, dtype, warm, traffic, true);
    suite.row(
        time_row(fmt::format("{} {}, {}", dtype.name, warm ? "warm" : "cold",
                             bytes_text(static_cast<double>(traffic))),
                 threshold_name(dtype, warm, traffic, false), "alone",
                 threshold_name(dtype, warm, traffic, true)));
  }
  suite.row(crossing_row(dtype, warm, measured));
}

}  // namespace

void add_threshold(Suite& suite) {
  suite.section("Threshold: a spawn, of the master alone (by traffic)");
  if (thread_counts().back() == 1) return;  // nobody to share with
  for (const Dtype& dtype : {kDtypes[0], kDtypes[2]}) {
    if (suite.quick() && dtype.dtype != SWAMP_FLOAT32) continue;
    add_sweep(suite, dtype, true);
    add_sweep(suite, dtype, false);
  }
}

}  // namespace swamp::bench
