// A launch run again, in children of the process: from the same memory, but in
// other orders of the slaves and with transfers at another time. What the
// slaves leave in main memory must be the same to the bit.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_

namespace swamp::sunway::check {

// start_replays() is the master's join of the groups of `mask`, before it waits
// and under the world's mutex: only a launch of which no slave has begun is run
// again. It returns in the children, too; they go on as the join does.
void start_replays(unsigned mask);

// end_replays() is the end of a launch. It reports what differs; a child does
// not return from it.
void end_replays();

// is_replay() says whether this process is such a child.
bool is_replay() noexcept;

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_
