// Meetings of slaves: toolchain/sunway/include/swamp_sunway/sync.h.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/meeting.h"
#include "toolchain/sunway/emulator/output.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway {
namespace {

Group& group_of(const Slave& slave) {
  return world().groups[static_cast<std::size_t>(slave.group)];
}

Barrier& barrier_of(const Slave& slave, Range range) {
  Group& group = group_of(slave);
  if (range == Range::array) return group.array;
  return range == Range::row
             ? group.rows[static_cast<std::size_t>(slave.id / kRowLength)]
             : group.columns[static_cast<std::size_t>(slave.id % kRowLength)];
}

void pass(Slave& slave, Barrier& barrier, Wait::Kind kind, const char* call,
          const void* pc) {
  ++slave.counters.syncs;
  take_turn(slave);
  Lock lock(world().mutex);
  if (slave.check) slave.check->arrive(&barrier, barrier.generation % 2);
  const std::uint64_t mine = barrier.arrive();
  if (barrier.passed(mine)) {
    changed();
  } else {
    block(slave, {kind, pc, call, [&] { return barrier.passed(mine); }}, lock);
  }
  if (slave.check) slave.check->leave(&barrier, mine % 2);
}

}  // namespace

void meet(Slave& slave, Range range, const char* call, const void* pc) {
  pass(slave, barrier_of(slave, range), Wait::Kind::sync, call, pc);
}

}  // namespace swamp::sunway

namespace sunway = swamp::sunway;
using sunway::Range;

namespace {

int meet(Range range, const char* call, const void* pc) {
  sunway::meet(sunway::require_self(call), range, call, pc);
  return 0;
}

// meet_some() is a meeting of those slaves of a row or column whose bits the
// mask has.
void meet_some(int scope, int mask, const void* pc) {
  sunway::Slave& slave = sunway::require_self("athread_syn");
  const int row = slave.id / sunway::kRowLength;
  const int column = slave.id % sunway::kRowLength;
  const int own = scope == 0 ? column : row;
  if (scope == 2 || (mask >> own & 1) == 0) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%x", static_cast<unsigned>(mask));
    sunway::fail(1, std::string("athread_syn(): the mask ") + text +
                        (scope == 2 ? " of ARRAY_SCOPE is not emulated: 0xffff"
                                    : " does not name the calling slave"));
  }
  sunway::Barrier* barrier = nullptr;
  {
    const sunway::Lock lock(sunway::world().mutex);
    barrier = &sunway::group_of(slave).parts[{scope, row + column - own, mask}];
    barrier->size = __builtin_popcount(static_cast<unsigned>(mask));
  }
  sunway::pass(slave, *barrier, sunway::Wait::Kind::sync, "athread_syn", pc);
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int athread_ssync_array() {
  return meet(Range::array, "ssync_array", SWAMP_SUNWAY_CALLER());
}
int athread_ssync_row() {
  return meet(Range::row, "ssync_row", SWAMP_SUNWAY_CALLER());
}
int athread_ssync_col() {
  return meet(Range::column, "ssync_col", SWAMP_SUNWAY_CALLER());
}
int athread_ssync_node() {
  sunway::Slave& slave = sunway::require_self("ssync_node");
  sunway::pass(slave, sunway::world().node, sunway::Wait::Kind::node,
               "ssync_node", SWAMP_SUNWAY_CALLER());
  return 0;
}

int athread_ssync_peer(int other) {
  sunway::Slave& slave = sunway::require_self("ssync_peer");
  sunway::take_turn(slave);
  sunway::World& all = sunway::world();
  sunway::Lock lock(all.mutex);
  if (other < 0 || other >= all.slaves_per_group() || other == slave.id) {
    return 1;
  }
  sunway::Slave& peer = all.slave(slave.group, other);
  const auto there = static_cast<std::size_t>(slave.id);
  const std::uint32_t mine = ++slave.peers[static_cast<std::size_t>(other)];
  if (slave.check) slave.check->arrive(&peer.peers[there], mine % 2);
  sunway::changed();
  sunway::block(slave,
                {sunway::Wait::Kind::sync, SWAMP_SUNWAY_CALLER(), "ssync_peer",
                 [&] { return peer.peers[there] >= mine; }},
                lock);
  if (slave.check) {
    slave.check->leave(&slave.peers[static_cast<std::size_t>(other)], mine % 2);
  }
  return 0;
}

int athread_ssync_master_array() {
  sunway::Slave& slave = sunway::require_self("ssync_master_array");
  sunway::pass(slave, sunway::group_of(slave).master,
               sunway::Wait::Kind::master, "ssync_master_array",
               SWAMP_SUNWAY_CALLER());
  return 0;
}
int athread_ssync_master_spe() {
  sunway::Slave& slave = sunway::require_self("ssync_master_spe");
  sunway::pass(slave, slave.with_master, sunway::Wait::Kind::master,
               "ssync_master_spe", SWAMP_SUNWAY_CALLER());
  return 0;
}

int athread_syn(int scope, int mask) {
  if (scope == 3) return athread_ssync_peer(mask);
  constexpr int kAll = 0xff;
  if ((mask & kAll) != kAll) {
    meet_some(scope, mask & kAll, SWAMP_SUNWAY_CALLER());
    return 0;
  }
  const Range range = scope == 0   ? Range::row
                      : scope == 1 ? Range::column
                                   : Range::array;
  return meet(range, "athread_syn", SWAMP_SUNWAY_CALLER());
}

#pragma GCC visibility pop

}  // extern "C"
