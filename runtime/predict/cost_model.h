// The cost of a launch on SW26010-Pro: traffic, counted transfer by transfer,
// the cycles that it takes, and those of the products of attention. A launch
// takes the larger of both. Spawn and join are not part of the model. Inline,
// because libswamp (swamp predict) and libswamp_sunway (SWAMP_PREDICT=1) share
// it and neither links the other.
#ifndef SWAMP_RUNTIME_PREDICT_COST_MODEL_H_
#define SWAMP_RUNTIME_PREDICT_COST_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace swamp::predict {

// The assumptions of the model: figures of SW26010-Pro, in cycles of a slave
// where no unit is given. "Fitted" means to bandwidths measured on SW39000
// (tests/runtime/predict_test.cpp). toolchain/sunway/README.md lists the same.

// The clock of a slave: cpuinfo of the measured SW39000.
inline constexpr double kHertz = 2.25e9;
// A line is the smallest unit that the memory reads or writes.
inline constexpr std::uint64_t kLineBytes = 128;
// One transfer while the memory is idle, fitted: of a get of one line, the
// latency of others and 100 more lines; the same of a put, and the part of
// puts of several lines that cover one of them in part.
inline constexpr std::uint64_t kGetOneLine = 441;
inline constexpr std::uint64_t kGetLatency = 470, kGetHundredLines = 727;
inline constexpr std::uint64_t kPutLatency = 235, kPutHundredLines = 685;
inline constexpr std::uint64_t kPutRagged = 125;
// The latency of a get while 64 slaves read, without the controller's work,
// fitted.
inline constexpr double kBusyGetLatency = 740;
// The memory controller of a core group, fitted: a line read, a line written
// in part, and a line written completely by up to 16 and by 64 slaves.
inline constexpr double kReadLine = 6.03;
inline constexpr double kPartialLine = 50.0;
inline constexpr double kWholeLineFew = 6.2, kWholeLineAll = 8.15;
// A direct load or store of main memory. Not measured; published numbers are
// 300 to 800.
inline constexpr std::uint64_t kDirectCycles = 500;
// Bytes of RMA that a slave receives per cycle: 24 were measured for all flows
// of a cluster of 4 slaves together. That a broadcast counts once for each
// receiver is an assumption, the worse one.
inline constexpr double kRmaBytesPerCycle = 24.0 / 4;
// The latency of RMA, without its bytes: 98 to 123 cycles were measured, by
// the distance of the clusters of 2 by 2 slaves.
inline constexpr std::uint64_t kRmaLatency = 98, kRmaHop = 4;
// Scalar code in which every instruction waits for the one before: the latency
// of an operation (a fused multiply-add has two) and of an access of LDM.
inline constexpr double kScalarFlop = 7.0 / 2, kScalarAccess = 4;
// Bytes of LDM per cycle: one access of 32, published for SW26010. That a
// kernel accesses each transferred byte once is an assumption.
inline constexpr double kLdmBytesPerCycle = 32;
// float32: a fused multiply-add of a vector of 8 per cycle (the public header's
// floatv8), which are the published 2.3 Tflop/s of a core group. That nothing
// stalls, and that arithmetic and transfers overlap, are assumptions.
inline constexpr double kFlopsPerCycle = 16;

// Lines counts the lines of main memory that a transfer touches.
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

// Cycles of one transfer while the memory is idle.
inline std::uint64_t get_cycles(const Lines& lines) noexcept {
  if (lines.touched == 1) return kGetOneLine;
  return kGetLatency + lines.touched * kGetHundredLines / 100;
}
inline std::uint64_t put_cycles(const Lines& lines) noexcept {
  const bool ragged = lines.partial() != 0 && lines.touched > 1;
  return kPutLatency + lines.touched * kPutHundredLines / 100 +
         (ragged ? kPutRagged : 0);
}

// Traffic is what one slave transferred.
struct Traffic {
  std::uint64_t get_requests = 0, put_requests = 0;
  std::uint64_t get_bytes = 0, put_bytes = 0;
  std::uint64_t lines_read = 0, lines_full = 0, lines_partial = 0;
  std::uint64_t get_latency = 0, put_latency = 0;  // cycles, one at a time
  std::uint64_t direct_loads = 0, direct_stores = 0;
  // Received from another slave by RMA instead of a get.
  std::uint64_t rma_requests = 0, rma_bytes = 0;
  std::uint64_t rma_latency = 0;  // cycles, one at a time, sent and received

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
    rma_latency += more.rma_latency;
  }
};

// GroupTraffic is the traffic of the slaves of a core group, which share one
// memory controller.
struct GroupTraffic {
  Traffic all;
  // The largest of any slave: cycles, one transfer at a time, and gets.
  std::uint64_t slowest = 0;
  std::uint64_t most_gets = 0;
  std::uint64_t readers = 0, writers = 0;  // slaves
  // The largest of any slave.
  std::uint64_t most_rma_bytes = 0, most_ldm_bytes = 0, most_rma_latency = 0;
  double most_flops = 0;

  void add(const Traffic& slave) noexcept {
    all.add(slave);
    most_rma_bytes = std::max(most_rma_bytes, slave.rma_bytes);
    most_rma_latency = std::max(most_rma_latency, slave.rma_latency);
    most_ldm_bytes = std::max(
        most_ldm_bytes, slave.get_bytes + slave.put_bytes + slave.rma_bytes);
    const std::uint64_t direct = slave.direct_loads + slave.direct_stores;
    slowest = std::max(slowest, slave.get_latency + slave.put_latency +
                                    direct * kDirectCycles);
    most_gets = std::max(most_gets, slave.get_requests);
    readers += slave.get_requests != 0 ? 1 : 0;
    writers += slave.put_requests != 0 ? 1 : 0;
  }
};

// A line that is written completely costs more if many slaves write.
inline double whole_line(std::uint64_t writers) noexcept {
  const double more =
      std::clamp((static_cast<double>(writers) - 16) / 48, 0.0, 1.0);
  return kWholeLineFew + (kWholeLineAll - kWholeLineFew) * more;
}

// get_wait() is the latency of a get, without the controller's work, if several
// slaves read. For one slave alone it is part of get_cycles().
inline double get_wait(std::uint64_t readers) noexcept {
  if (readers < 2) return 0;
  const double others = std::min(static_cast<double>(readers - 1), 63.0);
  return kGetLatency + (kBusyGetLatency - kGetLatency) * others / 63;
}

struct Cycles {
  // The slaves issue the next transfers in time, so that the controller is
  // never idle.
  double overlapped = 0;
  // Every get and RMA is waited for before the next.
  double one_after_another = 0;
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

// dma_cycles() returns the cycles of a group if the slave with most of them
// waits for a get `waits` times while it has no other in flight.
inline double dma_cycles(const GroupTraffic& group,
                         std::uint64_t waits) noexcept {
  const Traffic& all = group.all;
  const double memory =
      kReadLine * static_cast<double>(all.lines_read) +
      whole_line(group.writers) * static_cast<double>(all.lines_full) +
      kPartialLine * static_cast<double>(all.lines_partial);
  return std::max(memory + get_wait(group.readers) * static_cast<double>(waits),
                  static_cast<double>(group.slowest));
}

inline Cycles cycles_of(const GroupTraffic& group) noexcept {
  Cycles cycles;
  cycles.overlapped = dma_cycles(group, 0);
  cycles.one_after_another = dma_cycles(group, group.most_gets) +
                             static_cast<double>(group.most_rma_latency);
  cycles.rma = static_cast<double>(group.most_rma_bytes) / kRmaBytesPerCycle;
  cycles.ldm = static_cast<double>(group.most_ldm_bytes) / kLdmBytesPerCycle;
  cycles.arithmetic = group.most_flops / kFlopsPerCycle;
  cycles.total =
      std::max({cycles.overlapped, cycles.rma, cycles.ldm, cycles.arithmetic});
  return cycles;
}

}  // namespace swamp::predict

#endif  // SWAMP_RUNTIME_PREDICT_COST_MODEL_H_
