#ifndef SWAMP_SUNWAY_EMULATOR_BARRIER_H_
#define SWAMP_SUNWAY_EMULATOR_BARRIER_H_

#include <cstdint>

namespace swamp::sunway {

// Barrier counts arrivals; all under the world's mutex.
struct Barrier {
  int size = 0;
  int arrived = 0;
  std::uint64_t generation = 0;

  // arrive() returns the generation to wait for the end of.
  std::uint64_t arrive() noexcept {
    const std::uint64_t mine = generation;
    if (++arrived == size) {
      arrived = 0;
      ++generation;
    }
    return mine;
  }
  bool passed(std::uint64_t mine) const noexcept { return generation != mine; }
};

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_BARRIER_H_
