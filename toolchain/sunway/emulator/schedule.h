// The scheduler of the slaves. In transfer mode copy the operating system
// schedules them; in check mode one at a time, in an order that
// SWAMP_CHECK_SEED chooses, so that findings are reproducible.
#ifndef SWAMP_SUNWAY_EMULATOR_SCHEDULE_H_
#define SWAMP_SUNWAY_EMULATOR_SCHEDULE_H_

#include <mutex>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {

using Lock = std::unique_lock<std::mutex>;

// block() returns after the wait is ready and, in check mode, the slave has the
// turn. Ends the program with a report if no slave can ever continue.
void block(Slave& slave, const Wait& wait, Lock& lock);

// changed() wakes the slaves and masters whose wait has become ready.
void changed();

// ended() passes the turn on after the slave's function has returned.
void ended(Slave& slave);

// release_slaves() starts the slaves of a pending launch.
void release_slaves();

// master_waits() lets the slaves run and returns after the host thread's wait
// is ready.
void master_waits(const MasterWait& wait, Lock& lock);

// take_turn() waits for the turn if the slave has lost it.
void wait_for_turn(Slave& slave);
inline void take_turn(Slave& slave) {
  if (slave.state.load(std::memory_order_relaxed) == SlaveState::without_turn) {
    wait_for_turn(slave);
  }
}

// take_turn_from() makes a slave that runs wait for the turn at its next access
// or call. Under the machine's mutex; not for a slave with a KeepTurn, unless
// the program ends.
void take_turn_from(Slave& slave);

// KeepTurn does not let the slave lose the turn during a step that others must
// not see in part, however long the host keeps its thread from running.
class KeepTurn {
 public:
  explicit KeepTurn(Slave& slave);
  ~KeepTurn() { slave_.keeps_turn = false; }
  KeepTurn(const KeepTurn&) = delete;
  KeepTurn& operator=(const KeepTurn&) = delete;

 private:
  Slave& slave_;
};

// yield_turn() lets others run before the slave continues, in check mode: the
// next one, or the one that choose() picks (`by_seed`). Returns false if no
// other slave can run.
bool yield_turn(Slave& slave, bool by_seed = false);

// stop_slaves() is called in check mode at the end of the process, before
// anything is destroyed or reported. It returns after all slaves but the
// calling one have stopped, or 1 s later if one of them loops without accesses
// or waits for the operating system. They continue only if the calling thread
// joins them.
void stop_slaves();

// require_progress() ends the program with a report if all live slaves, or the
// masters if no slave is live, wait for something that cannot happen.
void require_progress();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_SCHEDULE_H_
