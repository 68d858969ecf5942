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
inline constexpr std::size_t kShadowDistance = std::size_t{1} << 25;

// Per-slave state of the inline test; the segment register gs points to it. An
// access of n bytes needs no check if address - slot < limit and all n flags
// are 0. A function's entry needs none if its frame is above `lowest`.
struct FastPath {
  std::uintptr_t slot = 0;
  std::atomic<std::uintptr_t> limit{0};  // 0: all accesses are checked
  std::uintptr_t lowest = ~std::uintptr_t{0};
  // What the code of this slave has executed since the last call of the
  // checker: halves of loads and stores (see Counters) in the lower 32 bits,
  // floating-point operations above.
  std::uint64_t counts = 0;
};

inline constexpr int kSlotOffset = 0;
inline constexpr int kLimitOffset = 8;
inline constexpr int kLowestOffset = 16;
inline constexpr int kCountsOffset = 24;
static_assert(sizeof(FastPath) == 32, "the offsets are those of FastPath");

// Before an inner loop whose addresses are first + step * i in iteration i, the
// code calls
//   int swamp_loop_needs_no_check(unsigned long iterations,
//                                 unsigned long count, ...)
// with `first`, `step` and a kind, `count` times. If this does not return 0, it
// calls swamp_loop_reads() for each load and runs its copy of the loop without
// tests (swcc/loops.cpp). The kind is the number of bytes, and kOnlyLdm for
// stores and for loads of some iterations only; or 0 bytes for an index, the
// highest that is legal being in bits 16 and above.
inline constexpr unsigned long kOnlyLdm = 256;
inline constexpr unsigned kMostLoopAccesses = 24;

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_FAST_PATH_H_
