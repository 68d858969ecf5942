#ifndef SWAMP_RUNTIME_SUNWAY_CHECK_CRASH_H_
#define SWAMP_RUNTIME_SUNWAY_CHECK_CRASH_H_

namespace swamp::sunway::check {

// watch_crashes() makes a program that crashes after a report end as reported
// programs do: most likely the one is why.
void watch_crashes();

// have_signal_stack() lets the calling thread's crashes be seen when it has no
// stack left.
void have_signal_stack();

}  // namespace swamp::sunway::check

#endif  // SWAMP_RUNTIME_SUNWAY_CHECK_CRASH_H_
