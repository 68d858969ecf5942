// A child that runs a launch again, from its side.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_CHILD_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_CHILD_H_

#include <sys/types.h>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// begin_child() waits for the parent's word and makes the launched slaves ready
// to run in `order`. Nothing of what they do is seen outside.
void begin_child(int channel, const Order& order, pid_t parent);

// finish_child() is when the slaves have ended.
[[noreturn]] void finish_child();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_REPLAY_CHILD_H_
