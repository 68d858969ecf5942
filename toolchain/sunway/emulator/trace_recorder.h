// What SWAMP_TRACE records of a slave while the program runs in copy mode.
#ifndef SWAMP_SUNWAY_EMULATOR_TRACE_RECORDER_H_
#define SWAMP_SUNWAY_EMULATOR_TRACE_RECORDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/observer.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway {

using Word = const volatile void*;

// Op is one thing that a slave did. Times are nanoseconds.
struct Op {
  enum class What {
    compute,  // number: its time
    get,      // number: bytes
    put,
    rma,
    raise,     // the end of the last transfer raises a reply word, `object`
    complete,  // waits for the last transfer, or for all if there is an object
    wait,      // until `object` was raised `number` times
    release,   // see SlaveObserver::releases()
    acquire,
  };
  What what;
  const char* name;  // of the call
  Word object;
  std::uint64_t number;
  long block, stride;
  predict::Lines lines;
};

// make_recorder() makes the observer of a slave, which carries transfers out
// like the core.
std::unique_ptr<SlaveObserver> make_recorder(Slave& slave);

// Returns the events of this launch; the slave's observer must be a recorder.
std::vector<Op>& recorded(const Slave& slave);

// clear_raised() begins to count the raises of reply words anew;
// master_unlocks() counts a release of the master's.
void clear_raised();
void master_unlocks(Word lock);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_TRACE_RECORDER_H_
