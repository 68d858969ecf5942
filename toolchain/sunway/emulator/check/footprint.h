// What the slaves of a launch read and write in main memory, and where that
// clashes.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_FOOTPRINT_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_FOOTPRINT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// Touch is one contiguous access.
struct Touch {
  std::uintptr_t begin, end;
  const Slave* slave;
  const void* pc;
  bool write;
  bool direct;          // by the slave's own instruction, not by a transfer
  std::uint64_t value;  // of a direct write, hashed
  std::shared_ptr<const Clock> before;  // what came before its start
  std::uint32_t done;                   // the slave's clock when it ended
};

// add_touch() enters an access. A full list is searched and forgotten.
void add_touch(const Touch& touch);

// touch_ldm() enters an access by one slave to the LDM of another, and reports
// with what it clashes.
void touch_ldm(const Slave& owner, const Touch& touch);

// search_touches() reports clashes and forgets the list: at the end of a
// launch, and when all live slaves have met.
void search_touches();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_FOOTPRINT_H_
