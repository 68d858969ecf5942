// Runs a launch again in child processes: from the same memory, but with other
// orders of the slaves and other times of transfers. The slaves must leave the
// same bits in main memory.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_

namespace swamp::sunway::check {

// start_replays() is called by the master's join of the groups of `mask`,
// before it waits and under the machine's mutex. Only a launch of which no
// slave has begun is run again. It also returns in the children, which continue
// with the join.
void start_replays(unsigned mask);

// end_replays() is called at the end of a launch and reports differences. It
// does not return in a child.
void end_replays();

// is_replay() returns whether this process is such a child.
bool is_replay() noexcept;

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_H_
