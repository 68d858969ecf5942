#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_HANG_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_HANG_H_

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// report_hang() says who waits where and ends the program. Under the world's
// mutex. In transfer mode copy, too: the alternative is to wait for ever.
[[noreturn]] void report_hang(bool waits_for_master);

// report_master_alone() is for a master that waits for slaves that are gone.
[[noreturn]] void report_master_alone(const MasterWait& wait);

// report_silence() is for a slave that loops without a call.
[[noreturn]] void report_silence(const Slave& slave, int seconds);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_HANG_H_
