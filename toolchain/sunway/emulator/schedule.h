// Who runs and who waits. In transfer mode copy the slaves run as the system
// lets them; in check mode one at a time, in an order that SWAMP_CHECK_SEED
// chooses, so that what is found is found again.
#ifndef SWAMP_SUNWAY_EMULATOR_SCHEDULE_H_
#define SWAMP_SUNWAY_EMULATOR_SCHEDULE_H_

#include <functional>
#include <mutex>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway {

using Lock = std::unique_lock<std::mutex>;

// block() returns when the wait is ready (and, in check mode, it is the slave's
// turn). Ends the program, with a report, when nobody can ever go on.
void block(Slave& slave, const Wait& wait, Lock& lock);

// changed() wakes those whose wait has become ready.
void changed();

// ended() gives the turn away for good: the slave's function returned.
void ended(Slave& slave);

// release_slaves() lets slaves run that were held until the master waits.
void release_slaves();

// master_waits() is a host thread's wait for slaves; it lets them run.
void master_waits(const MasterWait& wait, Lock& lock);

// take_turn() is for a slave that may have lost the turn: it waits for it.
void wait_for_turn(Slave& slave);
inline void take_turn(Slave& slave) {
  if (slave.loose.load(std::memory_order_relaxed)) wait_for_turn(slave);
}

// yield_turn() lets others run before the slave goes on, in check mode. Returns
// false when nobody else can.
bool yield_turn(Slave& slave);

// require_progress() ends the program with a report when all live slaves wait
// for what cannot come, or masters alone do.
void require_progress();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_SCHEDULE_H_
