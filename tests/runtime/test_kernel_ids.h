// Trivial kernels for the tests of the road.
#ifndef SWAMP_TESTS_RUNTIME_TEST_KERNEL_IDS_H_
#define SWAMP_TESTS_RUNTIME_TEST_KERNEL_IDS_H_

#include <cstdint>

#include "swamp/kernel.h"

namespace swamp::test {

// kAdd: one inout stream of uint32; adds args.value, flags elements that were
// kFlagged. kWiden: in uint16, out uint32, inout uint64: out = in + value and
// sum += in. kEnvironment: one out stream of uint32, set to the slave's control
// bits of the floating-point environment. kTally: one inout stream of uint8;
// adds args.value, and the sum of what was there to the partial result, a
// uint64. kSide: one out stream of uint32, set to 1 by code of swcc's slaves.
enum : KernelId { kAdd, kWiden, kEnvironment, kTally, kSide, kKernelCount };
inline constexpr std::uint32_t kFlagged = 0xdeadbeef;

struct Args {
  std::uint32_t value;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_RUNTIME_TEST_KERNEL_IDS_H_
