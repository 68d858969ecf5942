// What the code of slaves reads itself before it calls the checker for a load
// or store: most accesses need no check. swcc puts this test in front of the
// calls (swcc/tests.cpp).
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_FAST_PATH_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_FAST_PATH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace swamp::sunway::check {

// Every byte of a slave's slot has a byte of flags, this far above it.
inline constexpr std::size_t kShadowDistance = std::size_t{1} << 28;

// FastPath is what the segment register gs of a slave's thread points to. An
// access of n bytes needs no check if address - slot < limit and all n flags
// are 0. A function's entry needs none if its frame is above `lowest`.
struct FastPath {
  std::uintptr_t slot = 0;
  std::atomic<std::uintptr_t> limit{0};  // 0: all accesses are checked
  std::uintptr_t lowest = ~std::uintptr_t{0};
  // What the code of this slave has executed since the last call of the checker:
  // loads and stores in the lower 32 bits, floating-point operations above.
  std::uint64_t counts = 0;
};

inline constexpr int kSlotOffset = 0;
inline constexpr int kLimitOffset = 8;
inline constexpr int kLowestOffset = 16;
inline constexpr int kCountsOffset = 24;
static_assert(sizeof(FastPath) == 32, "the offsets are those of FastPath");

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_FAST_PATH_H_
