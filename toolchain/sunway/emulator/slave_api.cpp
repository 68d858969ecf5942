// Identity, LDM memory, clock and caches, for slaves.
#include <string>

#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/process.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace sunway = swamp::sunway;

namespace {

__thread unsigned long last_cycle = 0;
__thread unsigned long counted_from = 0;  // by penv_slave0_cycle_init()

unsigned long checked_cycle(sunway::Slave& slave) {
  sunway::take_turn(slave);
  ++slave.clock_reads;
  return slave.cycle += sunway::kCyclesPerRead;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int athread_get_id(int core) { return core == -1 ? _MYID : core; }
int athread_get_tid() { return _PEN; }
int athread_get_rid() { return _ROW; }
int athread_get_cid() { return _COL; }
int athread_get_cgn() { return _CGN; }

void* ldm_malloc(std::size_t bytes) {
  sunway::Slave& slave = sunway::require_self("ldm_malloc");
  const std::size_t offset = slave.heap.allocate(bytes);
  if (slave.check) slave.check->allocated(offset, bytes, SWAMP_SUNWAY_CALLER());
  return offset == sunway::LdmHeap::kNone ? nullptr : slave.slot + offset;
}

void ldm_free(void* memory, std::size_t bytes) {
  sunway::Slave& slave = sunway::require_self("ldm_free");
  if (memory == nullptr) return;
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(memory) - slave.slot);
  const std::size_t piece_bytes = slave.heap.release(offset);
  if (slave.check) {
    slave.check->freed(offset, piece_bytes, bytes, SWAMP_SUNWAY_CALLER());
  }
}

unsigned get_allocatable_size() {
  return static_cast<unsigned>(
      sunway::require_self("get_allocatable_size").heap.largest());
}

void* ldm_malloc_max(std::size_t* bytes) {
  sunway::Slave& slave = sunway::require_self("ldm_malloc_max");
  *bytes = slave.heap.largest();
  if (*bytes == 0) return nullptr;
  const std::size_t offset = slave.heap.allocate(*bytes);
  if (slave.check) {
    slave.check->allocated(offset, *bytes, SWAMP_SUNWAY_CALLER());
  }
  return slave.slot + offset;
}

void ldm_free_all() {
  sunway::Slave& slave = sunway::require_self("ldm_free_all");
  slave.heap.release_all();
  if (slave.check) slave.check->freed_all();
}

unsigned long athread_stime_cycle() {  // 2.25 GHz
  sunway::Slave* slave = sunway::self();
  if (slave != nullptr && slave->check) return checked_cycle(*slave);
  unsigned long now = sunway::nanoseconds() / 4 * 9;
  if (now <= last_cycle) now = last_cycle + 1;
  last_cycle = now;
  return now;
}

void penv_slave0_cycle_init() { counted_from = athread_stime_cycle(); }
void penv_slave0_cycle_count(unsigned long* cycles) {
  *cycles = athread_stime_cycle() - counted_from;
}

void flush_slave_cache() {}
void evict_slave_cache() {}
void evict_slave_cache_cont(volatile void*, volatile void*) {}
int set_cache_size(int) { return 0; }
int set_ptr_uncached(void**) { return 0; }
int set_ptr_cached(void**) { return 0; }
long get_slave_cache_size() { return 0; }
void CRTS_memb() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#pragma GCC visibility pop

}  // extern "C"

// What simd.h calls for a vector at an address that is no multiple of its size.

namespace sunway = swamp::sunway;

extern "C" {

#pragma GCC visibility push(default)

void swamp_simd_misaligned(const volatile void*, int bytes) {
  const sunway::Slave* slave = sunway::self();
  if (slave == nullptr || !sunway::machine().check)
    return;  // slow on the master
  sunway::check::report(
      {"misaligned", SWAMP_SUNWAY_CALLER(), slave,
       "simd_load or simd_store of a vector of " + std::to_string(bytes) +
           " bytes at an address that is no multiple of it: the machine ends "
           "the program; use simd_loadu/simd_storeu, or align the array"});
}

#pragma GCC visibility pop

}  // extern "C"
