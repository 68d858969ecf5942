// The counters that inline assembly reads (swamp_sunway/assembly.h): the
// processor's own, by these factors, which are 32.32 fixed-point numbers.
#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/clock.h"

namespace sunway = swamp::sunway;

extern "C" {
SWAMP_SUNWAY_API unsigned long swamp_slave_cycles = 0;   // 2.25 GHz
SWAMP_SUNWAY_API unsigned long swamp_master_cycles = 0;  // 2.1 GHz
}

namespace {

// measure() takes the length of two readings of both clocks.
__attribute__((constructor)) void measure() {
  constexpr unsigned long kNanoseconds = 200000;
  const unsigned long begin = sunway::nanoseconds();
  const unsigned long first = __builtin_ia32_rdtsc();
  unsigned long now = begin;
  while (now - begin < kNanoseconds) now = sunway::nanoseconds();
  const unsigned long ticks = __builtin_ia32_rdtsc() - first;
  const double of_tick = static_cast<double>(now - begin) /
                         static_cast<double>(ticks) * 4294967296.0;
  swamp_slave_cycles = static_cast<unsigned long>(of_tick * 2.25);
  swamp_master_cycles = static_cast<unsigned long>(of_tick * 2.1);
}

}  // namespace
