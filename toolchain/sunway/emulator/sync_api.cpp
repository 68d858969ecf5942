// Barriers and reductions of slaves:
// toolchain/sunway/include/swamp_sunway/sync.h.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway {
namespace {

Group& group_of(const Slave& slave) {
  return machine().groups[static_cast<std::size_t>(slave.group)];
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
  Lock lock(machine().mutex);
  if (slave.observer) {
    slave.observer->releases(Sync::barrier, &barrier, barrier.generation % 2);
  }
  const std::uint64_t mine = barrier.arrive();
  if (barrier.passed(mine)) {
    changed();
  } else {
    block(slave, {kind, pc, call, [&] { return barrier.passed(mine); }}, lock);
  }
  if (slave.observer) {
    slave.observer->acquires(Sync::barrier, &barrier, mine % 2);
  }
}

}  // namespace

void wait_at_barrier(Slave& slave, Range range, const char* call,
                     const void* pc) {
  pass(slave, barrier_of(slave, range), Wait::Kind::sync, call, pc);
}

}  // namespace swamp::sunway

namespace sunway = swamp::sunway;
using sunway::Range;

namespace {

int wait_at_barrier(Range range, const char* call, const void* pc) {
  sunway::wait_at_barrier(sunway::require_self(call), range, call, pc);
  return 0;
}

// wait_at_partial_barrier() is a barrier of the slaves of a row or column whose
// bits are set in the mask.
void wait_at_partial_barrier(int scope, int mask, const void* pc) {
  sunway::Slave& slave = sunway::require_self("athread_syn");
  const int row = slave.id / sunway::kRowLength;
  const int column = slave.id % sunway::kRowLength;
  const int own = scope == 0 ? column : row;
  if (scope == 2 || (mask >> own & 1) == 0) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%x", static_cast<unsigned>(mask));
    sunway::fail(
        1, std::string("athread_syn(): the mask ") + text +
               (scope == 2 ? " of ARRAY_SCOPE is not emulated; expected 0xffff"
                           : " does not name the calling slave"));
  }
  sunway::Barrier* barrier = nullptr;
  {
    const sunway::Lock lock(sunway::machine().mutex);
    barrier = &sunway::group_of(slave).parts[{scope, row + column - own, mask}];
    barrier->size = __builtin_popcount(static_cast<unsigned>(mask));
  }
  sunway::pass(slave, *barrier, sunway::Wait::Kind::sync, "athread_syn", pc);
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int athread_ssync_array() {
  return wait_at_barrier(Range::array, "ssync_array", SWAMP_SUNWAY_CALLER());
}
int athread_ssync_row() {
  return wait_at_barrier(Range::row, "ssync_row", SWAMP_SUNWAY_CALLER());
}
int athread_ssync_col() {
  return wait_at_barrier(Range::column, "ssync_col", SWAMP_SUNWAY_CALLER());
}
int athread_ssync_node() {
  sunway::Slave& slave = sunway::require_self("ssync_node");
  sunway::pass(slave, sunway::machine().node, sunway::Wait::Kind::node,
               "ssync_node", SWAMP_SUNWAY_CALLER());
  return 0;
}

int athread_ssync_peer(int other) {
  sunway::Slave& slave = sunway::require_self("ssync_peer");
  sunway::take_turn(slave);
  sunway::Machine& all = sunway::machine();
  sunway::Lock lock(all.mutex);
  if (other < 0 || other >= all.slaves_per_group() || other == slave.id) {
    return 1;
  }
  sunway::Slave& peer = all.slave(slave.group, other);
  const auto there = static_cast<std::size_t>(slave.id);
  const std::uint32_t mine = ++slave.peers[static_cast<std::size_t>(other)];
  if (slave.observer) {
    slave.observer->releases(sunway::Sync::barrier, &peer.peers[there],
                             mine % 2);
  }
  sunway::changed();
  sunway::block(slave,
                {sunway::Wait::Kind::sync, SWAMP_SUNWAY_CALLER(), "ssync_peer",
                 [&] { return peer.peers[there] >= mine; }},
                lock);
  if (slave.observer) {
    slave.observer->acquires(sunway::Sync::barrier,
                             &slave.peers[static_cast<std::size_t>(other)],
                             mine % 2);
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
    wait_at_partial_barrier(scope, mask & kAll, SWAMP_SUNWAY_CALLER());
    return 0;
  }
  const Range range = scope == 0   ? Range::row
                      : scope == 1 ? Range::column
                                   : Range::array;
  return wait_at_barrier(range, "athread_syn", SWAMP_SUNWAY_CALLER());
}

#pragma GCC visibility pop

}  // extern "C"

// Reductions over the array: swamp_sunway/sync.h.

namespace {

enum Type { kInt, kUnsigned, kLong, kUnsignedLong, kFloat, kDouble };
enum Operation { kAdd = 1, kAnd, kOr, kXor, kEqv, kMin, kMax };

// A vector type is `count` elements of a scalar type.
struct Elements {
  Type type;
  int count;
};
constexpr Elements kTypes[] = {
    {kInt, 1},   {kUnsigned, 1},     {kLong, 1},  {kUnsignedLong, 1},
    {kFloat, 1}, {kDouble, 1},       {kInt, 8},   {kUnsigned, 8},
    {kLong, 4},  {kUnsignedLong, 4}, {kFloat, 4}, {kDouble, 4},
    {kInt, 16},  {kUnsigned, 16},    {kLong, 8},  {kUnsignedLong, 8},
    {kFloat, 8}, {kDouble, 8},
};
constexpr int kTypeCount = sizeof kTypes / sizeof kTypes[0];

// The operand of each slave of each core group; nullptr if it is not legal.
const void* operands[6][64];

template <class T>
T bits(T a, T b, int operation) {
  if (operation == kAnd) return a & b;
  if (operation == kOr) return a | b;
  return operation == kXor ? a ^ b : static_cast<T>(~(a ^ b));
}
float bits(float a, float, int) { return a; }
double bits(double a, double, int) { return a; }

template <class T>
T combine(T a, T b, int operation) {
  switch (operation) {
    case kAdd:
      return a + b;
    case kMin:
      return std::min(a, b);
    case kMax:
      return std::max(a, b);
    default:
      return bits(a, b, operation);
  }
}

bool may_access(const sunway::Slave& slave, const void* address,
                std::size_t bytes, bool write, const char* call,
                const void* pc) {
  return !slave.observer ||
         slave.observer->operand(address, bytes, write, call, pc);
}

// reduce() combines in the order of the slaves, so that all get the same bits.
template <class T>
void reduce(sunway::Slave& slave, const void* mine, void* to, int count,
            int operation, const char* call, const void* pc) {
  std::vector<T> sum(static_cast<std::size_t>(count));
  const std::size_t bytes = sum.size() * sizeof(T);
  operands[slave.group][slave.id] =
      may_access(slave, mine, bytes, false, call, pc) ? mine : nullptr;
  sunway::wait_at_barrier(slave, sunway::Range::array, call, pc);
  bool first = true;
  sunway::for_range(
      slave, sunway::Range::array, ~0u, [&](const sunway::Slave& other) {
        const auto* from =
            static_cast<const T*>(operands[other.group][other.id]);
        if (from == nullptr) return;
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] = first ? from[i] : combine(sum[i], from[i], operation);
        }
        first = false;
      });
  sunway::wait_at_barrier(slave, sunway::Range::array, call, pc);
  if (may_access(slave, to, bytes, true, call, pc)) {
    std::memcpy(to, sum.data(), bytes);
  }
}
constexpr decltype(&reduce<int>) kReduce[] = {  // by Type
    &reduce<int>,           &reduce<unsigned>, &reduce<long>,
    &reduce<unsigned long>, &reduce<float>,    &reduce<double>};

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int CRTS_scoll_redurt(void* from, void* to, int units, int vector,
                      int operation, void*, int) {
  constexpr const char* kCall = "CRTS_scoll_redurt";
  const void* pc = SWAMP_SUNWAY_CALLER();
  sunway::Slave& slave = sunway::require_self(kCall);
  if (units <= 0 || vector < 0 || vector >= kTypeCount || operation < kAdd ||
      operation > kMax) {
    return 1;
  }
  const Type type = kTypes[vector].type;
  const int count = units * kTypes[vector].count;
  if (type >= kFloat && operation >= kAnd && operation <= kEqv) return 1;
  kReduce[type](slave, from, to, count, operation, kCall, pc);
  return 0;
}

int CRTS_scoll_alltoall(void* from, void* to, int length) {
  constexpr const char* kCall = "CRTS_scoll_alltoall";
  const void* pc = SWAMP_SUNWAY_CALLER();
  sunway::Slave& slave = sunway::require_self(kCall);
  if (length <= 0) return 1;
  const auto bytes = static_cast<std::size_t>(length);
  std::vector<std::byte> pieces(
      bytes * static_cast<std::size_t>(sunway::machine().slaves_per_group()));
  operands[slave.group][slave.id] =
      may_access(slave, from, pieces.size(), false, kCall, pc) ? from : nullptr;
  sunway::wait_at_barrier(slave, sunway::Range::array, kCall, pc);
  sunway::for_range(
      slave, sunway::Range::array, ~0u, [&](const sunway::Slave& other) {
        const auto* whole =
            static_cast<const std::byte*>(operands[other.group][other.id]);
        if (whole == nullptr) return;
        std::memcpy(pieces.data() + bytes * static_cast<std::size_t>(other.id),
                    whole + bytes * static_cast<std::size_t>(slave.id), bytes);
      });
  sunway::wait_at_barrier(slave, sunway::Range::array, kCall, pc);
  if (may_access(slave, to, pieces.size(), true, kCall, pc)) {
    std::memcpy(to, pieces.data(), pieces.size());
  }
  return 0;
}

#pragma GCC visibility pop

}  // extern "C"
