// The counters that inline assembly reads (swamp_sunway/assembly.h): the
// processor's own, by these factors, which are 32.32 fixed-point numbers.
#include <algorithm>
#include <cstring>
#include <vector>

#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/process.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace sunway = swamp::sunway;

extern "C" {
SWAMP_SUNWAY_API unsigned long swamp_slave_cycles = 0;   // 2.25 GHz
SWAMP_SUNWAY_API unsigned long swamp_master_cycles = 0;  // 2.1 GHz
}

namespace {

// measure() takes the length of two readings of both clocks.
__attribute__((constructor)) void measure() {
  constexpr unsigned long kNanoseconds = 200000;
  const unsigned long begin = sunway::nanoseconds();
  const unsigned long first = __builtin_ia32_rdtsc();
  unsigned long now = begin;
  while (now - begin < kNanoseconds) now = sunway::nanoseconds();
  const unsigned long ticks = __builtin_ia32_rdtsc() - first;
  const double of_tick = static_cast<double>(now - begin) /
                         static_cast<double>(ticks) * 4294967296.0;
  swamp_slave_cycles = static_cast<unsigned long>(of_tick * 2.25);
  swamp_master_cycles = static_cast<unsigned long>(of_tick * 2.1);
}

}  // namespace

// Register communication of SW26010: what swcc makes of putr, putc, getr and
// getc in inline assembly.

namespace sunway = swamp::sunway;
using sunway::Packet;
using sunway::Slave;

namespace {

// A receiver holds 4 packets, a sender 6 that are on their way.
constexpr std::size_t kOnTheWay = 10;

std::deque<Packet>& buffer(Slave& slave, sunway::Range range) {
  return range == sunway::Range::row ? slave.from_row : slave.from_column;
}

// put() sends to the slave of that number in the row or column; 8 is all
// others of it, at once: packets of two senders come everywhere in one order.
void put(sunway::Range range, const void* value, std::size_t bytes, int to,
         const char* call, const void* pc) {
  Slave& slave = sunway::require_self(call);
  sunway::take_turn(slave);
  Packet packet{};
  std::memcpy(packet.bytes.data(), value, std::min(bytes, packet.bytes.size()));
  std::vector<std::deque<Packet>*> receivers;
  sunway::for_range(slave, range, ~0u, [&](Slave& other) {
    const int place = range == sunway::Range::row
                          ? other.id % sunway::kRowLength
                          : other.id / sunway::kRowLength;
    if (&other == &slave || (to < sunway::kRowLength && place != to)) return;
    receivers.push_back(&buffer(other, range));
  });
  const auto have_room = [&] {
    return std::all_of(
        receivers.begin(), receivers.end(),
        [](const auto* packets) { return packets->size() < kOnTheWay; });
  };
  sunway::Machine& all = sunway::machine();
  sunway::Lock lock(all.mutex);
  sunway::block(slave, {sunway::Wait::Kind::sync, pc, call, have_room}, lock);
  packet.number = ++all.packets;
  for (std::deque<Packet>* packets : receivers) {
    if (slave.check) slave.check->arrive(packets, packet.number);
    packets->push_back(packet);
  }
  sunway::changed();
}

void get(sunway::Range range, void* value, std::size_t bytes, const char* call,
         const void* pc) {
  Slave& slave = sunway::require_self(call);
  sunway::take_turn(slave);
  std::deque<Packet>& from = buffer(slave, range);
  sunway::Lock lock(sunway::machine().mutex);
  sunway::block(
      slave,
      {sunway::Wait::Kind::sync, pc, call, [&] { return !from.empty(); }},
      lock);
  if (slave.check) slave.check->leave_message(&from, from.front().number);
  std::memcpy(value, from.front().bytes.data(),
              std::min(bytes, from.front().bytes.size()));
  from.pop_front();
  sunway::changed();
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

void swamp_putr(const void* value, unsigned long bytes, int to) {
  put(sunway::Range::row, value, bytes, to, "putr", SWAMP_SUNWAY_CALLER());
}
void swamp_putc(const void* value, unsigned long bytes, int to) {
  put(sunway::Range::column, value, bytes, to, "putc", SWAMP_SUNWAY_CALLER());
}
void swamp_getr(void* value, unsigned long bytes) {
  get(sunway::Range::row, value, bytes, "getr", SWAMP_SUNWAY_CALLER());
}
void swamp_getc(void* value, unsigned long bytes) {
  get(sunway::Range::column, value, bytes, "getc", SWAMP_SUNWAY_CALLER());
}

#pragma GCC visibility pop

}  // extern "C"
