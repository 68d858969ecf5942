#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_HANG_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_HANG_H_

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// report_hang() reports which slaves wait where, and ends the program. Under
// the machine's mutex. It works in transfer mode copy, too.
[[noreturn]] void report_hang(bool waits_for_master);

// report_master_alone() is for a master that waits after all slaves have ended.
[[noreturn]] void report_master_alone(const MasterWait& wait);

// report_silence() is for a slave that loops without a call.
[[noreturn]] void report_silence(const Slave& slave, int seconds);

// start_watchdog() starts, once, the thread that takes the turn from a slave
// that loops without a call, starts a pending launch if the master does not
// wait, and reports when nothing has moved for SWAMP_CHECK_TIMEOUT seconds.
void start_watchdog();
// restart_watchdog() is for a child of fork().
void restart_watchdog();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_HANG_H_
