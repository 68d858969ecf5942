#ifndef SWAMP_SUNWAY_EMULATOR_MEETING_H_
#define SWAMP_SUNWAY_EMULATOR_MEETING_H_

#include "toolchain/sunway/emulator/ids.h"
#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway {

enum class Range { array, row, column };

// for_range() visits the slaves of `slave`'s array, row or column. For `row`,
// bit r of `mask` adds row r; ~0u is the slave's own alone. Column likewise.
template <class Visit>
void for_range(const Slave& slave, Range range, unsigned mask, Visit visit) {
  const Group& group = world().groups[static_cast<std::size_t>(slave.group)];
  const int own =
      range == Range::row ? slave.id / kRowLength : slave.id % kRowLength;
  if (mask == ~0u) mask = 1u << own;
  for (const auto& other : group.slaves) {
    const int line =
        range == Range::row ? other->id / kRowLength : other->id % kRowLength;
    if (range == Range::array || (mask >> line & 1u) != 0) visit(*other);
  }
}

// meet() returns when all slaves of the range have called it.
void meet(Slave& slave, Range range, const char* call, const void* pc);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_MEETING_H_
