#ifndef SWAMP_RUNTIME_SUNWAY_CLOCK_H_
#define SWAMP_RUNTIME_SUNWAY_CLOCK_H_

#include <ctime>

namespace swamp::sunway {

// nanoseconds() is a clock that only goes forward.
inline unsigned long nanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long>(now.tv_sec) * 1000000000ul +
         static_cast<unsigned long>(now.tv_nsec);
}

}  // namespace swamp::sunway

#endif  // SWAMP_RUNTIME_SUNWAY_CLOCK_H_
