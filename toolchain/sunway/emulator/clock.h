#ifndef SWAMP_SUNWAY_EMULATOR_CLOCK_H_
#define SWAMP_SUNWAY_EMULATOR_CLOCK_H_

#include <ctime>

namespace swamp::sunway {

// nanoseconds() is a clock that only goes forward.
inline unsigned long nanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long>(now.tv_sec) * 1000000000ul +
         static_cast<unsigned long>(now.tv_nsec);
}

// In check mode time is what slaves have done: every look at the clock is a
// step of it, so that times are the same however the slaves are scheduled.
inline constexpr unsigned long kCyclesOfALook = 225;

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_CLOCK_H_
