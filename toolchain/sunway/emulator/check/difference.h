// Where two runs of a launch left different bytes in main memory.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_DIFFERENCE_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_DIFFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "toolchain/sunway/emulator/check/channel.h"

namespace swamp::sunway::check {

// Difference is one word of 4 bytes, and who wrote it last in each run; at
// least one of them is there.
struct Difference {
  std::uintptr_t address = 0;
  std::uint32_t here = 0, there = 0;
  const Written* writer = nullptr;  // here
  const Written* other = nullptr;
  bool own = true;  // one slave's alone, who did more of the work in one run
};

// find_differences() compares what this process and a child have where either
// of them wrote. Left out: bytes that no instruction of the program's wrote,
// and slaves' counts of how much of shared work each took, as long as their sum
// is the same.
std::vector<Difference> find_differences(const std::vector<Written>& here,
                                         const Outcome& there, int channel);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_DIFFERENCE_H_
