// Calls of slaves: identity, LDM memory, clocks, caches, register
// communication.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace sunway = swamp::sunway;
using sunway::Packet;
using sunway::Slave;

// The parts of a vector that simd.h computes with one instruction.
using Floats = float __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(16)));

namespace {

__thread unsigned long last_cycle = 0;
__thread unsigned long counted_from = 0;  // by penv_slave0_cycle_init()

sunway::SlaveObserver* own_observer() {
  const Slave* slave = sunway::self();
  return slave != nullptr ? slave->observer.get() : nullptr;
}

unsigned long checked_cycle(sunway::Slave& slave) {
  sunway::take_turn(slave);
  ++slave.clock_reads;
  return slave.cycle += sunway::kCyclesPerRead;
}

// stack_bytes() returns the size of the stack of the slave's code that called
// the function with this frame.
std::size_t stack_bytes(const Slave& slave, const void* frame) {
  constexpr std::ptrdiff_t kLink = 16;  // the return address and the old frame
  return static_cast<std::size_t>(slave.stack_top -
                                  static_cast<const std::byte*>(frame) - kLink);
}

// largest_block() leaves a little of LDM to calls of other functions. Frames of
// check mode are larger, and this mode should offer the same.
std::size_t largest_block(const Slave& slave, const void* frame) {
  constexpr std::size_t kStep = 1024;
  return slave.heap.largest((stack_bytes(slave, frame) / kStep + 1) * kStep);
}

// allocate() returns an offset in the slot, or LdmHeap::kNone.
std::size_t allocate(Slave& slave, std::size_t bytes, const void* frame,
                     const void* pc) {
  const std::size_t stack = stack_bytes(slave, frame);
  const std::size_t offset = slave.heap.allocate(bytes, stack);
  if (slave.observer) slave.observer->allocated(offset, bytes, stack, pc);
  return offset;
}

void report_misaligned(int bytes, const void* pc) {
  const Slave* slave = sunway::self();
  // On the master such a vector is only slow.
  if (slave == nullptr || !sunway::machine().check) return;
  sunway::report(
      {"misaligned", pc, slave,
       "simd_load or simd_store of a vector of " + std::to_string(bytes) +
           " bytes at an address that is not a multiple of that: the machine "
           "ends the program; use simd_loadu/simd_storeu, or align the array"});
}

// vector_access() copies a vector between memory and a register of 64 bytes:
// `bytes`, or what a register of the caller's core holds.
void vector_access(void* to, const void* from, int bytes, bool store,
                   const void* pc) {
  constexpr int kWide = 64, kNarrow = 32;
  const Slave* slave = sunway::self();
  if (bytes == 0) {
    const bool wide =
        slave != nullptr && sunway::settings().machine != "sw26010";
    bytes = wide ? kWide : kNarrow;
  }
  const auto size = static_cast<std::size_t>(bytes);
  const void* memory = store ? to : from;
  if (reinterpret_cast<std::uintptr_t>(memory) % size != 0) {
    report_misaligned(bytes, pc);
  }
  if (slave == nullptr || !slave->observer ||
      slave->observer->operand(memory, size, store, "a vector", pc)) {
    std::memcpy(to, from, size);
  }
}

// nothing_came() returns whether no message waits, and lets others run then.
int nothing_came(std::deque<Packet> Slave::*queue, const char* call) {
  Slave& slave = sunway::require_self(call);
  sunway::take_turn(slave);
  {
    const sunway::Lock lock(sunway::machine().mutex);
    if (!(slave.*queue).empty()) return 0;
  }
  if (!sunway::machine().check || !sunway::yield_turn(slave)) sched_yield();
  return 1;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

// The registers that inline assembly names by number, each of a vector.
__thread long swamp_registers[64][8];

int athread_get_id(int core) { return core == -1 ? _MYID : core; }
int athread_get_tid() { return _PEN; }
int athread_get_rid() { return _ROW; }
int athread_get_cid() { return _COL; }
int athread_get_cgn() { return _CGN; }

void* ldm_malloc(std::size_t bytes) {
  sunway::Slave& slave = sunway::require_self("ldm_malloc");
  const std::size_t offset =
      allocate(slave, bytes, __builtin_frame_address(0), SWAMP_SUNWAY_CALLER());
  return offset == sunway::LdmHeap::kNone ? nullptr : slave.slot + offset;
}

void ldm_free(void* memory, std::size_t bytes) {
  sunway::Slave& slave = sunway::require_self("ldm_free");
  if (memory == nullptr) return;
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(memory) - slave.slot);
  const std::size_t piece_bytes = slave.heap.release(offset);
  if (slave.observer) {
    slave.observer->freed(offset, piece_bytes, bytes, SWAMP_SUNWAY_CALLER());
  }
}

unsigned get_allocatable_size() {
  return static_cast<unsigned>(
      largest_block(sunway::require_self("get_allocatable_size"),
                    __builtin_frame_address(0)));
}

void* ldm_malloc_max(std::size_t* bytes) {
  sunway::Slave& slave = sunway::require_self("ldm_malloc_max");
  const void* frame = __builtin_frame_address(0);
  *bytes = largest_block(slave, frame);
  return *bytes == 0 ? nullptr
                     : slave.slot + allocate(slave, *bytes, frame,
                                             SWAMP_SUNWAY_CALLER());
}

void ldm_free_all() {
  sunway::Slave& slave = sunway::require_self("ldm_free_all");
  slave.heap.release_all();
  if (slave.observer) slave.observer->freed_all();
}

unsigned long athread_stime_cycle() {  // 2.25 GHz
  sunway::Slave* slave = sunway::self();
  if (slave != nullptr && sunway::machine().check) {
    return checked_cycle(*slave);
  }
  unsigned long now = sunway::nanoseconds() / 4 * 9;
  if (now <= last_cycle) now = last_cycle + 1;
  last_cycle = now;
  return now;
}

void penv_slave0_cycle_init() { counted_from = athread_stime_cycle(); }
void penv_slave0_cycle_count(unsigned long* cycles) {
  *cycles = athread_stime_cycle() - counted_from;
}

void evict_slave_cache_cont(volatile void* begin, volatile void* end) {
  if (sunway::SlaveObserver* own = own_observer()) own->evicts(begin, end);
}
void evict_slave_cache() { evict_slave_cache_cont(nullptr, nullptr); }
void flush_slave_cache() { evict_slave_cache(); }
int set_cache_size(int) {
  if (sunway::observer != nullptr) sunway::observer->not_cached(nullptr);
  return 0;
}
int set_ptr_uncached(void** pointer) {
  if (sunway::observer != nullptr && *pointer != nullptr) {
    sunway::observer->not_cached(*pointer);
  }
  return 0;
}
int set_ptr_cached(void**) { return 0; }
long get_slave_cache_size() { return _cache_size * 1024L; }
void CRTS_memb() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// simd.h calls this if the address of a vector is not a multiple of its size.
void swamp_simd_misaligned(const volatile void*, int bytes) {
  report_misaligned(bytes, SWAMP_SUNWAY_CALLER());
}

// What rcsr reads of the buffers of register communication.
int swamp_row_empty() {
  return nothing_came(&Slave::from_row, "rcsr of the row's messages");
}
int swamp_column_empty() {
  return nothing_came(&Slave::from_column, "rcsr of the column's messages");
}
int swamp_put_full() { return 0; }

// Loads and stores of vectors in inline assembly.
void swamp_vector_load(void* to, const void* from, int bytes) {
  vector_access(to, from, bytes, false, SWAMP_SUNWAY_CALLER());
}
void swamp_vector_store(const void* from, void* to, int bytes) {
  vector_access(to, from, bytes, true, SWAMP_SUNWAY_CALLER());
}

int swamp_simd_has_fma = 0;

Floats swamp_simd_software_fmas(Floats a, Floats b, Floats c) {
  for (int i = 0; i < 4; ++i) a[i] = std::fma(a[i], b[i], c[i]);
  return a;
}
Doubles swamp_simd_software_fmad(Doubles a, Doubles b, Doubles c) {
  for (int i = 0; i < 2; ++i) a[i] = std::fma(a[i], b[i], c[i]);
  return a;
}

#pragma GCC visibility pop

}  // extern "C"

extern "C" {
SWAMP_SUNWAY_API unsigned long swamp_slave_cycles = 0;   // 2.25 GHz
SWAMP_SUNWAY_API unsigned long swamp_master_cycles = 0;  // 2.1 GHz
}

namespace {

__attribute__((constructor)) void find_fma() {
  swamp_simd_has_fma = __builtin_cpu_supports("fma");
}

// The counters that inline assembly reads (swamp_sunway/assembly.h) are the
// processor's time stamp times these 32.32 fixed-point factors. measure()
// compares the time stamp with the system's clock.
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

// Register communication of SW26010: swcc replaces putr, putc, getr and getc in
// inline assembly by calls of swamp_putr() and so on.

// A receiver holds 4 packets, and a sender 6 that are in transit.
constexpr std::size_t kInTransit = 10;

std::deque<Packet>& buffer(Slave& slave, sunway::Range range) {
  return range == sunway::Range::row ? slave.from_row : slave.from_column;
}

// put() sends to slave `to` of the row or column; 8 means all the others at
// once, so that packets of two senders arrive everywhere in the same order.
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
        [](const auto* packets) { return packets->size() < kInTransit; });
  };
  sunway::Machine& all = sunway::machine();
  sunway::Lock lock(all.mutex);
  sunway::block(slave, {sunway::Wait::Kind::packet, pc, call, have_room}, lock);
  packet.number = ++all.packets;
  packet.sender = &slave;
  packet.pc = pc;
  for (std::deque<Packet>* packets : receivers) {
    if (slave.observer) {
      slave.observer->releases(sunway::Sync::message, packets, packet.number);
    }
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
      {sunway::Wait::Kind::packet, pc, call, [&] { return !from.empty(); }},
      lock);
  if (slave.observer) {
    slave.observer->acquires(sunway::Sync::message, &from, from.front().number);
  }
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
