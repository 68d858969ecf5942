#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_RANGES_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_RANGES_H_

#include <cstddef>
#include <cstdint>

#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

// number() is an address as an integer. overlaps() returns whether two ranges
// of LDM share a byte.
inline std::uintptr_t number(const volatile void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

inline bool overlaps(std::uintptr_t begin, std::uintptr_t end,
                     const volatile void* other, std::size_t bytes) {
  return begin < number(other) + bytes && number(other) < end;
}

inline bool overlaps(const Transfer& a, const Transfer& b) {
  return overlaps(number(a.ldm),
                  number(a.ldm) + static_cast<std::size_t>(a.length), b.ldm,
                  static_cast<std::size_t>(b.length));
}

// overlaps_main() returns whether a transfer accesses a byte of [begin, end) in
// main memory. The gaps between its blocks do not count.
inline bool overlaps_main(const Transfer& t, std::uintptr_t begin,
                          std::uintptr_t end) {
  const std::uintptr_t base = number(t.main);
  if (end <= base || begin >= base + t.extent()) return false;
  if (t.stride == 0 || t.block <= 0) return true;
  const auto block = static_cast<std::uintptr_t>(t.block);
  const std::uintptr_t period = block + static_cast<std::uintptr_t>(t.stride);
  const std::uintptr_t from = begin > base ? begin - base : 0;
  return from % period < block || (from / period + 1) * period < end - base;
}

inline bool overlaps_main(const Transfer& a, const Transfer& b) {
  bool found = false;
  for_blocks(a, [&](std::byte* main, std::byte*, std::size_t bytes) {
    found = found || overlaps_main(b, number(main), number(main) + bytes);
  });
  return found;
}

inline std::size_t bytes_of(const Transfer& t) {
  return static_cast<std::size_t>(t.length);
}

// hash() is FNV-1a.
inline std::uint64_t hash(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i) {
    sum = (sum ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3u;
  }
  return sum;
}

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_RANGES_H_
