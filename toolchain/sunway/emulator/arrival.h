// What one slave sends to others takes time on the machine, in which the others
// go on: often they reset the reply word just then.
#ifndef SWAMP_SUNWAY_EMULATOR_ARRIVAL_H_
#define SWAMP_SUNWAY_EMULATOR_ARRIVAL_H_

#include "toolchain/sunway/emulator/meeting.h"
#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway {

// before_arrival() returns when the receivers wait for something, have ended,
// or had long enough. In check mode only seed 0 with late transfers does that:
// the other orders, those of replays too, show who relies on it.
void before_arrival(Slave& slave, Slave& receiver);
void before_arrival(Slave& slave, Range range, unsigned mask);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_ARRIVAL_H_
