// The cost of a launch on SW26010-Pro: traffic, counted transfer by transfer,
// and the cycles that it takes, and those of the arithmetic. Spawn and join are
// not part of the model. Inline, because libswamp (swamp predict) and
// libswamp_sunway (SWAMP_PREDICT=1) share it and neither links the other.
#ifndef SWAMP_RUNTIME_PREDICT_COST_MODEL_H_
#define SWAMP_RUNTIME_PREDICT_COST_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace swamp::predict {

inline constexpr std::uint64_t kLineBytes = 128;

// Lines counts the lines of main memory that a transfer touches. A line is the
// smallest unit that the memory reads or writes.
struct Lines {
  std::uint64_t touched = 0;
  std::uint64_t whole = 0;  // covered completely

  std::uint64_t partial() const noexcept { return touched - whole; }
  void add(const Lines& more) noexcept {
    touched += more.touched;
    whole += more.whole;
  }
};

inline Lines lines_of(std::uint64_t address, std::uint64_t bytes) noexcept {
  if (bytes == 0) return {};
  const std::uint64_t end = address + bytes;
  const std::uint64_t first = (address + kLineBytes - 1) / kLineBytes;
  const std::uint64_t last = end / kLineBytes;
  return {(end + kLineBytes - 1) / kLineBytes - address / kLineBytes,
          last > first ? last - first : 0};
}

inline Lines lines_of(const void* address, std::size_t bytes) noexcept {
  return lines_of(reinterpret_cast<std::uintptr_t>(address), bytes);
}

// Cycles of one transfer while the memory is idle, fitted to measurements on
// SW39000 (master/cli/predict/measured.cpp).
inline std::uint64_t get_cycles(const Lines& lines) noexcept {
  return lines.touched == 1 ? 441 : 470 + lines.touched * 727 / 100;
}
inline std::uint64_t put_cycles(const Lines& lines) noexcept {
  const bool ragged = lines.partial() != 0 && lines.touched > 1;
  return 235 + lines.touched * 685 / 100 + (ragged ? 125 : 0);
}

// Cycles of a direct load or store of main memory. Not measured; published
// numbers are 300 to 800.
inline constexpr std::uint64_t kDirectCycles = 500;

// Traffic is what one slave transferred.
struct Traffic {
  std::uint64_t get_requests = 0, put_requests = 0;
  std::uint64_t get_bytes = 0, put_bytes = 0;
  std::uint64_t lines_read = 0, lines_full = 0, lines_partial = 0;
  std::uint64_t get_latency = 0, put_latency = 0;  // cycles, one at a time
  std::uint64_t direct_loads = 0, direct_stores = 0;
  // Received from another slave by RMA instead of a get.
  std::uint64_t rma_requests = 0, rma_bytes = 0;

  void receive(std::uint64_t bytes) noexcept {
    ++rma_requests;
    rma_bytes += bytes;
  }
  void get(std::uint64_t bytes, const Lines& lines) noexcept {
    ++get_requests;
    get_bytes += bytes;
    lines_read += lines.touched;
    get_latency += get_cycles(lines);
  }
  void put(std::uint64_t bytes, const Lines& lines) noexcept {
    ++put_requests;
    put_bytes += bytes;
    lines_full += lines.whole;
    lines_partial += lines.partial();
    put_latency += put_cycles(lines);
  }
  // In words of 8 bytes.
  void load(std::uint64_t bytes) noexcept { direct_loads += (bytes + 7) / 8; }
  void store(std::uint64_t bytes) noexcept { direct_stores += (bytes + 7) / 8; }
  void add(const Traffic& more) noexcept {
    get_requests += more.get_requests;
    put_requests += more.put_requests;
    get_bytes += more.get_bytes;
    put_bytes += more.put_bytes;
    lines_read += more.lines_read;
    lines_full += more.lines_full;
    lines_partial += more.lines_partial;
    get_latency += more.get_latency;
    put_latency += more.put_latency;
    direct_loads += more.direct_loads;
    direct_stores += more.direct_stores;
    rma_requests += more.rma_requests;
    rma_bytes += more.rma_bytes;
  }
};

inline constexpr double kHertz = 2.25e9;

// A slave issues one operation on a vector of 8 float32 per cycle (the public
// header's floatv8; 16 flop per cycle are the published 2.3 Tflop/s of a core
// group), and one access to LDM of 32 bytes per cycle (published for SW26010).
// That both can be issued in one cycle is an assumption.
inline constexpr double kOperationsPerCycle = 1;
inline constexpr double kAccessesPerCycle = 1;
// Bytes of RMA that a slave receives per cycle: 24 were measured for all flows
// of a cluster of 4 slaves together. That a broadcast counts once for each
// receiver is an assumption, the worse one.
inline constexpr double kRmaBytesPerCycle = 24.0 / 4;

// GroupTraffic is the traffic of the slaves of a core group, which share one
// memory controller.
struct GroupTraffic {
  Traffic all;
  // The largest of any slave: cycles, one transfer at a time, and gets.
  std::uint64_t slowest = 0;
  std::uint64_t most_gets = 0;
  std::uint64_t readers = 0, writers = 0;  // slaves
  // The largest of any slave.
  double operations = 0, accesses = 0;
  std::uint64_t most_rma_bytes = 0;

  void add_work(double slave_operations, double slave_accesses) noexcept {
    operations = std::max(operations, slave_operations);
    accesses = std::max(accesses, slave_accesses);
  }
  void add(const Traffic& slave) noexcept {
    all.add(slave);
    most_rma_bytes = std::max(most_rma_bytes, slave.rma_bytes);
    const std::uint64_t direct = slave.direct_loads + slave.direct_stores;
    slowest = std::max(slowest, slave.get_latency + slave.put_latency +
                                    direct * kDirectCycles);
    most_gets = std::max(most_gets, slave.get_requests);
    readers += slave.get_requests != 0 ? 1 : 0;
    writers += slave.put_requests != 0 ? 1 : 0;
  }
};

// Cycles of the controller for a line that is read, and for one that is written
// in part; fitted to the same measurements.
inline constexpr double kReadLine = 6.03;
inline constexpr double kPartialLine = 50.0;

// A line that is written completely costs more if many slaves write.
inline double whole_line(std::uint64_t writers) noexcept {
  constexpr double kFew = 6.2;  // up to 16 slaves
  constexpr double kAll = 8.15;
  const double more =
      std::clamp((static_cast<double>(writers) - 16) / 48, 0.0, 1.0);
  return kFew + (kAll - kFew) * more;
}

// get_wait() is the latency of a get, without the controller's work, if several
// slaves read. For one slave alone it is part of get_cycles().
inline double get_wait(std::uint64_t readers) noexcept {
  if (readers < 2) return 0;
  const double others = std::min(static_cast<double>(readers - 1), 63.0);
  return 470 + (740 - 470) * others / 63;
}

struct Cycles {
  // The slaves issue the next transfers in time, so that the controller is
  // never idle.
  double overlapped = 0;
  double one_after_another = 0;  // every get is waited for before the next
  double rma = 0;
  double ldm = 0;
  double arithmetic = 0;
  double total = 0;  // the largest, except one_after_another

  void add(const Cycles& more) noexcept {
    overlapped += more.overlapped;
    one_after_another += more.one_after_another;
    rma += more.rma;
    ldm += more.ldm;
    arithmetic += more.arithmetic;
    total += more.total;
  }
  void raise(const Cycles& other) noexcept {
    overlapped = std::max(overlapped, other.overlapped);
    one_after_another = std::max(one_after_another, other.one_after_another);
    rma = std::max(rma, other.rma);
    ldm = std::max(ldm, other.ldm);
    arithmetic = std::max(arithmetic, other.arithmetic);
    total = std::max(total, other.total);
  }
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
  Cycles cycles;
  cycles.overlapped = std::max(memory, slowest);
  cycles.one_after_another = std::max(memory + waits, slowest);
  cycles.rma = static_cast<double>(group.most_rma_bytes) / kRmaBytesPerCycle;
  cycles.ldm = group.accesses / kAccessesPerCycle;
  cycles.arithmetic = group.operations / kOperationsPerCycle;
  cycles.total =
      std::max({cycles.overlapped, cycles.rma, cycles.ldm, cycles.arithmetic});
  return cycles;
}

}  // namespace swamp::predict

#endif  // SWAMP_RUNTIME_PREDICT_COST_MODEL_H_
