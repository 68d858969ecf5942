// How much of an LDM each kernel needed.
#ifndef SWAMP_SUNWAY_EMULATOR_LDM_PEAK_H_
#define SWAMP_SUNWAY_EMULATOR_LDM_PEAK_H_

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway {

// begin_ldm_peak() and end_ldm_peak() are around a slave's part of a launch.
void begin_ldm_peak(Slave& slave);
void end_ldm_peak(const Slave& slave);

// say_ldm_peaks() says, once for every function that was spawned, what its
// slaves needed at most: SWAMP_PREDICT=1 on stderr, SWAMP_CHECK_REPORT in the
// file. The stack is known in check mode only.
void say_ldm_peaks();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_LDM_PEAK_H_
