// What counted traffic costs on SW26010-Pro. The model knows nothing of
// computation, and nothing of spawn and join, which nobody has measured.
#ifndef SWAMP_RUNTIME_PREDICT_COST_MODEL_H_
#define SWAMP_RUNTIME_PREDICT_COST_MODEL_H_

#include <algorithm>
#include <cstdint>

#include "runtime/predict/traffic.h"

namespace swamp::predict {

inline constexpr double kHertz = 2.25e9;

// GroupTraffic is that of the slaves of a core group, who share one memory
// controller.
struct GroupTraffic {
  Traffic all;
  std::uint64_t slowest = 0;    // cycles of a slave, one transfer at a time
  std::uint64_t most_gets = 0;  // of one slave
  std::uint64_t readers = 0, writers = 0;  // slaves

  void add(const Traffic& slave) noexcept {
    all.add(slave);
    const std::uint64_t direct = slave.direct_loads + slave.direct_stores;
    slowest = std::max(slowest, slave.get_latency + slave.put_latency +
                                    direct * kDirectCycles);
    most_gets = std::max(most_gets, slave.get_requests);
    readers += slave.get_requests != 0 ? 1 : 0;
    writers += slave.put_requests != 0 ? 1 : 0;
  }
};

// Measured on SW39000 (shared/reference/sunway.md, 2.2 and 6), in cycles: what
// the controller takes for a line read, and for one written in part.
inline constexpr double kReadLine = 6.03;
inline constexpr double kPartialLine = 50.0;

// A line written whole costs more where many write at once.
inline double whole_line(std::uint64_t writers) noexcept {
  constexpr double kFew = 6.2;  // up to 16 slaves
  constexpr double kAll = 8.15;
  const double more =
      std::clamp((static_cast<double>(writers) - 16) / 48, 0.0, 1.0);
  return kFew + (kAll - kFew) * more;
}

// get_wait() is how long a get is on its way beside the controller's work; what
// one slave alone waits is in get_cycles().
inline double get_wait(std::uint64_t readers) noexcept {
  if (readers < 2) return 0;
  const double others = std::min(static_cast<double>(readers - 1), 63.0);
  return 470 + (740 - 470) * others / 63;
}

struct Cycles {
  // While data travel the slaves issue the next transfers: the controller never
  // waits.
  double overlapped = 0;
  double one_after_another = 0;  // every get is waited for before the next
};

inline Cycles cycles_of(const GroupTraffic& group) noexcept {
  const Traffic& all = group.all;
  const double memory =
      kReadLine * static_cast<double>(all.lines_read) +
      whole_line(group.writers) * static_cast<double>(all.lines_full) +
      kPartialLine * static_cast<double>(all.lines_partial);
  const auto slowest = static_cast<double>(group.slowest);
  const double waits =
      get_wait(group.readers) * static_cast<double>(group.most_gets);
  return {std::max(memory, slowest), std::max(memory + waits, slowest)};
}

}  // namespace swamp::predict

#endif  // SWAMP_RUNTIME_PREDICT_COST_MODEL_H_
