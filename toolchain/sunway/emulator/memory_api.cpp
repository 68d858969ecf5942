// The vendor's functions for main memory: allocation, locks, atomics. All of
// main memory is coherent here.
#include <malloc.h>
#include <sched.h>

#include <cstdint>
#include <cstdlib>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace sunway = swamp::sunway;

namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t kPlain = 16;  // alignment of malloc()

// allocate() is memalign() for a caller at `pc`. It uses the program's, which
// may be AddressSanitizer's.
void* allocate(std::size_t alignment, std::size_t bytes, const void* pc) {
  void* memory = ::memalign(alignment, bytes);
  if (memory != nullptr && sunway::observer != nullptr) {
    sunway::observer->allocated(memory, bytes, pc);
  }
  return memory;
}

void* not_cached(void* memory) {
  if (sunway::observer != nullptr) sunway::observer->not_cached(memory);
  return memory;
}

template <class Word>
bool try_lock(volatile Word* word) {
  Word free = 0;
  return __atomic_compare_exchange_n(word, &free, Word{1}, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// acquired() and releasing() inform the observer; releasing() is called before
// the lock is free.
void acquired(const volatile void* word) {
  sunway::Slave* slave = sunway::self();
  if (slave == nullptr) {
    const sunway::Lock guard(sunway::machine().mutex);
    sunway::count_master();
    if (sunway::observer != nullptr) sunway::observer->acquires(word, 0, 0);
  } else if (slave->observer) {
    slave->observer->acquires(sunway::Sync::lock, word, 0);
  }
}

void releasing(const volatile void* word) {
  sunway::Slave* slave = sunway::self();
  if (slave == nullptr) {
    if (sunway::observer != nullptr) {
      sunway::observer->releases(word, 0, sunway::all_groups_mask());
    }
  } else if (slave->observer) {
    slave->observer->releases(sunway::Sync::lock, word, 0);
  }
}

template <class Word>
void lock(volatile Word* word, const void* pc) {
  sunway::Slave* slave = sunway::self();
  if (slave != nullptr) {
    if (slave->observer) slave->observer->gives_way();
    sunway::take_turn(*slave);
  }
  if (!try_lock(word)) {
    const auto is_free = [word] {
      return __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0;
    };
    constexpr auto kLock = sunway::Wait::Kind::lock;
    sunway::Lock guard(sunway::machine().mutex);
    do {
      if (slave == nullptr) {
        sunway::master_waits({kLock, pc, "a lock", is_free}, guard);
      } else {
        sunway::block(*slave, {kLock, pc, "a lock", is_free}, guard);
      }
    } while (!try_lock(word));
  }
  acquired(word);
}

template <class Word>
bool trylock(volatile Word* word, const void* pc) {
  sunway::Slave* slave = sunway::self();
  if (slave != nullptr) {
    if (slave->observer) slave->observer->gives_way();
    sunway::take_turn(*slave);
  }
  const bool mine = try_lock(word);
  if (mine) {
    acquired(word);
  } else if (slave != nullptr && slave->observer) {
    slave->observer->tried(word, pc);
  } else {
    if (sunway::observer != nullptr) sunway::observer->polls();
    sched_yield();  // the owner may be waiting for a processor
  }
  return mine;
}

template <class Word>
void unlock(volatile Word* word) {
  sunway::Machine& all = sunway::machine();
  const sunway::Lock guard(all.mutex);
  releasing(word);
  __atomic_store_n(word, Word{0}, __ATOMIC_RELEASE);
  sunway::changed();
}

template <class Word>
Word add(volatile Word* word, Word value, const void* pc) {
  sunway::Slave* slave = sunway::self();
  if (slave != nullptr && slave->observer) {
    slave->observer->gives_way();
    slave->observer->atomic(word, sizeof(Word), true, pc);
  } else if (sunway::observer != nullptr) {
    sunway::observer->atomic(word, sizeof(Word));
  }
  const Word old = __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
  // Others may take many tasks before the slave begins this one.
  if (slave != nullptr && slave->observer) slave->observer->gives_way();
  return old;
}

// part_lock() is the lock of part `place` of the slaves of a core group.
enum Part { kArray, kRow, kColumn, kHalf, kQuarter, kPair, kClusters };
volatile long* part_lock(int group, int part, int place) {
  static volatile long locks[6][kClusters + 4][64];
  return &locks[group][part][place];
}
// cluster_of() returns the number of the cluster of two by two slaves.
int cluster_of(int id) { return id >> 4 << 2 | (id & 7) >> 1; }
volatile long node_lock;

unsigned long counted_from = 0;  // by penv_host0_cycle_init()

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

void* _sw_xmalloc(std::size_t bytes) {
  return allocate(kPlain, bytes, SWAMP_SUNWAY_CALLER());
}
void _sw_xfree(void* memory) { std::free(memory); }
void* libc_aligned_malloc(std::size_t bytes) {
  return allocate(kAlignment, bytes, SWAMP_SUNWAY_CALLER());
}
void libc_aligned_free(void* memory) { std::free(memory); }
void* libc_uncached_malloc(std::size_t bytes) {
  return not_cached(allocate(kPlain, bytes, SWAMP_SUNWAY_CALLER()));
}
void* libc_uncached_aligned_malloc(std::size_t bytes) {
  return not_cached(allocate(kAlignment, bytes, SWAMP_SUNWAY_CALLER()));
}
void* libc_set_aligned_malloc(std::size_t bytes, std::size_t alignment) {
  return allocate(alignment, bytes, SWAMP_SUNWAY_CALLER());
}

int athread_mutex_lock(volatile std::int64_t* word) {
  lock(word, SWAMP_SUNWAY_CALLER());
  return 0;
}
int athread_mutex_trylock(volatile std::int64_t* word) {
  return trylock(word, SWAMP_SUNWAY_CALLER()) ? 0 : 1;
}
int athread_mutex_unlock(volatile std::int64_t* word) {
  unlock(word);
  return 0;
}
int athread_lock(volatile long* word) {
  lock(word, SWAMP_SUNWAY_CALLER());
  return 0;
}
int athread_unlock(volatile long* word) {
  unlock(word);
  return 0;
}
#define SWAMP_PART_LOCK(name, part, place)                            \
  int CRTS_smutex_lock_##name() {                                     \
    const sunway::Slave& slave =                                      \
        sunway::require_self("CRTS_smutex_lock_" #name);              \
    lock(part_lock(slave.group, part, place), SWAMP_SUNWAY_CALLER()); \
    return 0;                                                         \
  }                                                                   \
  int CRTS_smutex_unlock_##name() {                                   \
    const sunway::Slave& slave =                                      \
        sunway::require_self("CRTS_smutex_unlock_" #name);            \
    unlock(part_lock(slave.group, part, place));                      \
    return 0;                                                         \
  }
SWAMP_PART_LOCK(array, kArray, 0)
SWAMP_PART_LOCK(row, kRow, slave.id / sunway::kRowLength)
SWAMP_PART_LOCK(col, kColumn, slave.id % sunway::kRowLength)
SWAMP_PART_LOCK(32spe, kHalf, slave.id / 32)
SWAMP_PART_LOCK(16spe, kQuarter, slave.id / 16)
SWAMP_PART_LOCK(2spe, kPair, slave.id / 2)
SWAMP_PART_LOCK(1spc, kClusters, cluster_of(slave.id))
SWAMP_PART_LOCK(2spc, kClusters + 1, cluster_of(slave.id) / 2)
SWAMP_PART_LOCK(4spc, kClusters + 2, cluster_of(slave.id) / 4)
SWAMP_PART_LOCK(8spc, kClusters + 3, cluster_of(slave.id) / 8)

int athread_mutex_lock_node() {
  lock(&node_lock, SWAMP_SUNWAY_CALLER());
  return 0;
}
int athread_mutex_trylock_node() {
  return trylock(&node_lock, SWAMP_SUNWAY_CALLER()) ? 0 : 1;
}
int athread_mutex_unlock_node() {
  unlock(&node_lock);
  return 0;
}

int faaw(volatile int* word, int value) {
  return add(word, value, SWAMP_SUNWAY_CALLER());
}
long faal(volatile long* word, long value) {
  return add(word, value, SWAMP_SUNWAY_CALLER());
}
int updt_addw(int value, volatile int* word) {
  return add(word, value, SWAMP_SUNWAY_CALLER());
}
int updt_subw(int value, volatile int* word) {
  return add(word, -value, SWAMP_SUNWAY_CALLER());
}
long updt_addl(long value, volatile long* word) {
  return add(word, value, SWAMP_SUNWAY_CALLER());
}

unsigned long CRTS_time_cycle() {  // 2.1 GHz
  sunway::Slave* slave = sunway::self();
  if (slave != nullptr && sunway::machine().check) {
    ++slave->clock_reads;
    return slave->cycle += sunway::kCyclesPerRead;
  }
  return sunway::nanoseconds() / 10 * 21;
}
void penv_host0_cycle_init() { counted_from = CRTS_time_cycle(); }
void penv_host0_cycle_count(unsigned long* cycles) {
  *cycles = CRTS_time_cycle() - counted_from;
}

#pragma GCC visibility pop

}  // extern "C"
