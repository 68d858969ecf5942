// The DMA traffic of one slave, counted as its transfers are issued. Shared by
// libswamp (swamp predict) and libswamp_sunway (SWAMP_PREDICT=1); all inline,
// because neither has anything of the other.
#ifndef SWAMP_RUNTIME_PREDICT_TRAFFIC_H_
#define SWAMP_RUNTIME_PREDICT_TRAFFIC_H_

#include <cstddef>
#include <cstdint>

namespace swamp::predict {

inline constexpr std::uint64_t kLineBytes = 128;

// Lines are those of main memory that a transfer touches; the memory reads and
// writes nothing smaller.
struct Lines {
  std::uint64_t touched = 0;
  std::uint64_t whole = 0;  // of them, covered from end to end

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

// Cycles of one transfer of one slave that finds the memory idle: measured on
// SW39000 (shared/reference/sunway.md, 6).
inline std::uint64_t get_cycles(const Lines& lines) noexcept {
  return lines.touched == 1 ? 441 : 470 + lines.touched * 727 / 100;
}
inline std::uint64_t put_cycles(const Lines& lines) noexcept {
  const bool ragged = lines.partial() != 0 && lines.touched > 1;
  return 235 + lines.touched * 685 / 100 + (ragged ? 125 : 0);
}

// Cycles of a load or store that goes to main memory directly. Not measured:
// 300 to 800 are told.
inline constexpr std::uint64_t kDirectCycles = 500;

struct Traffic {
  std::uint64_t get_requests = 0, put_requests = 0;
  std::uint64_t get_bytes = 0, put_bytes = 0;
  std::uint64_t lines_read = 0, lines_full = 0, lines_partial = 0;
  std::uint64_t get_latency = 0, put_latency = 0;  // cycles, one at a time
  std::uint64_t direct_loads = 0, direct_stores = 0;

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
  // A word of 8 bytes at a time.
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
  }
};

}  // namespace swamp::predict

#endif  // SWAMP_RUNTIME_PREDICT_TRAFFIC_H_
