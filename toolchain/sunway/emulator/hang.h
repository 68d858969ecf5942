// Reports of programs that cannot continue, in every transfer mode.
#ifndef SWAMP_SUNWAY_EMULATOR_HANG_H_
#define SWAMP_SUNWAY_EMULATOR_HANG_H_

#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway {

// report_hang() reports which slaves wait where, and ends the program. Under
// the machine's mutex.
[[noreturn]] void report_hang(bool waits_for_master);

// report_master_alone() is for a master that waits after all slaves have ended.
[[noreturn]] void report_master_alone(const MasterWait& wait);

// end_with() reports a finding after which the program cannot continue.
[[noreturn]] void end_with(const Finding& finding);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_HANG_H_
