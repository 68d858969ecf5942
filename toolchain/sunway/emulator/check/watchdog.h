#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_WATCHDOG_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_WATCHDOG_H_

namespace swamp::sunway::check {

// start_watchdog() starts, once, the thread that takes the turn from a slave
// that loops without a call, lets held slaves go when the master does not wait,
// and reports when nothing has moved for SWAMP_CHECK_TIMEOUT seconds.
void start_watchdog();
// restart_watchdog() is for a child of fork().
void restart_watchdog();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_WATCHDOG_H_
