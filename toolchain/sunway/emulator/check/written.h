// What the slaves of a launch wrote to main memory, kept while runs of it are
// to be compared.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_WRITTEN_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_WRITTEN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// Written is one range, and the last of one writer's calls there.
struct Written {
  std::uintptr_t begin, end;
  const void* pc;  // nullptr: what is there is no program's, like padding
  const Slave* slave;
};

// keep_written() begins an empty list, or ends the keeping.
void keep_written(bool keep);
bool keeps_written() noexcept;
void add_written(const Written& range);
// written() is the list, sorted, or nullptr: it was too much to keep.
const std::vector<Written>* written();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_WRITTEN_H_
