// Mode copy: slaves that poll give way if there are more slaves than
// processors.
#ifndef SWAMP_SUNWAY_EMULATOR_POLLS_H_
#define SWAMP_SUNWAY_EMULATOR_POLLS_H_

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {

// watch_polls() is called by the thread of a slave in mode copy, once.
void watch_polls();
// end_nap() lets a slave poll again: another one has sent something to its LDM.
void end_nap(Slave& slave) noexcept;

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_POLLS_H_
