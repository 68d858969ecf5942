#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_CRASH_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_CRASH_H_

namespace swamp::sunway::check {

// watch_crashes() installs, once, handlers for the signals of faults for which
// the program has none. They print which slave does what and where, and end the
// process by the signal, or, after a report, as reported programs end: most
// likely what was reported is why.
void watch_crashes();

// have_signal_stack() lets the calling thread's crashes be seen when it has no
// stack left.
void have_signal_stack();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_CRASH_H_
