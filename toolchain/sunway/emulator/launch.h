#ifndef SWAMP_SUNWAY_EMULATOR_LAUNCH_H_
#define SWAMP_SUNWAY_EMULATOR_LAUNCH_H_

#include <cstdint>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {

// launch() starts `function` on the slaves of the core groups of `mask`.
// Returns 0, or EBUSY when one of them runs or was not joined.
int launch(unsigned mask, void* function, void* argument, const void* pc);
// join() waits for the groups of `mask`; ESRCH when one was not launched.
int join(unsigned mask, const void* pc);

// launch_one() and join_one() are for single slaves of the host thread's own
// core group.
int launch_one(int id, void* function, void* argument, const void* pc);
int join_one(int id, const void* pc);

unsigned all_groups_mask();
// own_group_mask() is own_group() as a mask.
unsigned own_group_mask(bool claim);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_LAUNCH_H_
