// threshold/: from what traffic on a spawn pays. Every list is measured with
// the spawn forced and with the master alone; Tuning::spawn_traffic_bytes
// should lie where the first begins to win.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "master/plan.h"
#include "runtime/machine_impl.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kKib = 1024;
constexpr std::size_t kTraffic[] = {
    8 * kKib,   16 * kKib,  32 * kKib,  48 * kKib,  64 * kKib,
    80 * kKib,  96 * kKib,  128 * kKib, 192 * kKib, 256 * kKib,
    384 * kKib, 512 * kKib, 768 * kKib, 1024 * kKib};

// A list of this many elements that the plan can cut into as many equal parts
// as any: tensors of just over half a grain, so that none shares one. A list
// that is one grain cannot be split at all, whatever the threshold.
std::vector<std::size_t> splittable_counts(std::size_t elements) {
  constexpr std::size_t kMore = master::kBlockElements / 2 + 16;
  const std::size_t pairs = elements / (2 * kMore);
  if (pairs == 0) return {};
  return std::vector<std::size_t>(2 * pairs, elements / (2 * pairs));
}

std::string threshold_name(const Dtype& dtype, std::size_t traffic,
                           const char* how) {
  return fmt::format("threshold/{}/traffic:{}/{}", dtype.name, traffic, how);
}

Machine& threshold_machine(bool alone) {
  static Machine spawning;
  static Machine working_alone;
  spawning.impl().tuning.spawn_traffic_bytes = 0;
  working_alone.impl().tuning.spawn_traffic_bytes = ~std::size_t{0};
  return alone ? working_alone : spawning;
}

void add_case(Suite& suite, const Dtype& dtype, std::size_t traffic,
              bool alone) {
  const int threads = thread_counts().back();
  const std::vector<std::size_t> counts =
      splittable_counts(traffic / 2 / dtype.bytes);
  suite.add(threshold_name(dtype, traffic, alone ? "alone" : "spawn"), threads,
            {2.0 * static_cast<double>(element_bytes(dtype, counts)), 0},
            [=](benchmark::State& state) {
              run_operator(state, threshold_machine(alone),
                           make_list(dtype, counts), kFlipSign);
            });
}

// The smallest traffic from which on the spawn wins, at every larger one too.
Row crossing_row(const Dtype& dtype, std::vector<std::size_t> traffic) {
  return [=](const Results& results) -> std::optional<Line> {
    std::size_t crossing = 0;
    for (const std::size_t bytes : traffic) {
      const auto spawn = results.find(threshold_name(dtype, bytes, "spawn"));
      const auto alone = results.find(threshold_name(dtype, bytes, "alone"));
      if (!spawn || !alone) return std::nullopt;
      if (spawn->seconds >= alone->seconds) {
        crossing = 0;
      } else if (crossing == 0) {
        crossing = bytes;
      }
    }
    const auto tuned =
        static_cast<double>(runtime::Tuning{}.spawn_traffic_bytes);
    Line line;
    line.what = std::string(dtype.name) + ", the spawn wins from";
    line.measured = crossing == 0 ? "nowhere yet"
                                  : bytes_text(static_cast<double>(crossing));
    line.against = "Tuning has " + bytes_text(tuned);
    if (crossing != 0) line.ratio = static_cast<double>(crossing) / tuned;
    return line;
  };
}

}  // namespace

void add_threshold(Suite& suite) {
  suite.section("Threshold: a spawn, of the master alone (by traffic)");
  if (thread_counts().back() == 1) return;  // nobody to share with
  for (const Dtype& dtype : {kDtypes[0], kDtypes[2]}) {
    if (suite.quick() && dtype.dtype != SWAMP_FLOAT32) continue;
    std::vector<std::size_t> measured;
    for (const std::size_t traffic : kTraffic) {
      if (splittable_counts(traffic / 2 / dtype.bytes).empty()) continue;
      measured.push_back(traffic);
      add_case(suite, dtype, traffic, false);
      add_case(suite, dtype, traffic, true);
      suite.row(time_row(std::string(dtype.name) + ", " +
                             bytes_text(static_cast<double>(traffic)),
                         threshold_name(dtype, traffic, "spawn"), "alone",
                         threshold_name(dtype, traffic, "alone")));
    }
    suite.row(crossing_row(dtype, measured));
  }
}

}  // namespace swamp::bench
