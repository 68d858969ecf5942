// The emulated chip: core groups of slaves, each slave an OS thread with an LDM
// of its own, and the master, who is the program's own thread.
#ifndef SWAMP_SUNWAY_EMULATOR_WORLD_H_
#define SWAMP_SUNWAY_EMULATOR_WORLD_H_

#include <pthread.h>
#include <semaphore.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/predict/traffic.h"
#include "toolchain/sunway/emulator/barrier.h"
#include "toolchain/sunway/emulator/ldm_heap.h"

namespace swamp::sunway {

namespace check {
class SlaveCheck;
}

using SlaveFunction = void (*)(void*);

// Wait is what a blocked slave waits for, and where.
struct Wait {
  enum class Kind { turn, reply, sync, node, master, lock };
  Kind kind;
  const void* pc;
  const char* what;  // "ssync_array"
  std::function<bool()> ready;
  volatile const void* reply = nullptr;
  int value = 0;
};

// MasterWait is what a host thread waits for, and where. ready() only looks: it
// is evaluated by other threads, too.
struct MasterWait {
  Wait::Kind kind;
  const void* pc;
  const char* what;  // "athread_join"
  std::function<bool()> ready;
};

// Counters are the traffic of one slave, for the cost model.
struct Counters : predict::Traffic {
  std::uint64_t rma_requests = 0, rma_bytes = 0;
  std::uint64_t syncs = 0;
};

// Packet is what one slave puts into another's register, for getr and getc.
struct Packet {
  std::array<std::byte, 64> bytes;
  std::uint64_t number;  // of all packets
};

// Slave is one emulated slave core. Its LDM is a slot of address space of the
// same layout as every other slave's: the heap, a guard page, then the stack
// with the thread's static variables (TLS) above it.
struct Slave {
  int group = 0;
  int id = 0;  // in its group
  std::byte* slot = nullptr;
  std::byte* stack = nullptr;      // lowest address, slot < stack
  std::byte* statics = nullptr;    // the program's TLS block
  std::byte* stack_top = nullptr;  // where the slave's function began
  const void* last_pc = nullptr;   // of its calls, in check mode
  const void* look_pc = nullptr;   // of a loop on one word, since that call
  LdmHeap heap;
  pthread_t thread = {};
  sem_t start = {};
  sem_t ready = {};
  Counters counters;
  std::uint64_t cycle = 0;        // of its clock, in check mode
  std::uint64_t clock_reads = 0;  // of this launch
  std::uint64_t tickets = 0;      // locks and atomics of this launch
  unsigned long patience = 0;     // nanoseconds of this launch, for receivers
  // Set while the slave runs without the turn.
  std::atomic<bool> loose{false};
  std::unique_ptr<check::SlaveCheck> check;  // in check mode

  // Under the world's mutex.
  SlaveFunction function = nullptr;
  void* argument = nullptr;
  int thread_number = 0;  // _MYID
  bool live = false;
  bool sending = false;  // lets receivers go on first: arrival.h
  // Until its thread has come: who is first must not depend on the system.
  const Wait first_turn{Wait::Kind::turn, nullptr, "its turn",
                        [] { return true; }};
  const Wait* wait = nullptr;
  std::condition_variable wake;
  std::vector<std::uint32_t> peers;  // meetings with each slave of its group
  Barrier with_master{2, 0, 0};
  std::deque<Packet> from_row, from_column;

  bool in_ldm(const volatile void* address, std::size_t bytes) const noexcept;
};

// Group is a core group. Under the world's mutex.
struct Group {
  enum class State { idle, running, ended };
  State state = State::idle;
  bool singles = false;  // of athread_create(), each waited for alone
  bool owned = false;    // by the host thread whose athread_spawn() it is for
  int launched = 0;
  std::uint64_t spawns = 0;
  int remaining = 0;
  std::vector<std::unique_ptr<Slave>> slaves;
  // Where the slots of its slaves begin; other threads may read it unlocked.
  std::atomic<std::byte*> memory{nullptr};
  Barrier array;
  Barrier master;  // with the master
  std::vector<Barrier> rows, columns;
  // Some slaves of a row (0) or column (1): scope, its number, mask.
  std::map<std::array<int, 3>, Barrier> parts;
  const void* spawned_at = nullptr;
};

// Order is what a run leaves to chance on the machine: which slave is first,
// and whether a transfer happens when it is issued (eager) or waited for.
struct Order {
  std::uint64_t seed = 0;
  bool eager = false;
  std::uint64_t lot = 1;  // of the lots drawn for seeds above 1

  static Order of_seed(std::uint64_t seed) noexcept {
    return {seed, seed % 2 == 1, seed * 0x9e3779b97f4a7c15u + 1};
  }
};

class World {
 public:
  std::mutex mutex;
  std::condition_variable master_wake;
  std::vector<Group> groups;
  Barrier node;  // of size 0: see end_node_meeting() in schedule.cpp
  std::size_t ldm_bytes = 0;
  std::size_t static_bytes = 0;  // of the program's TLS, in every LDM
  std::size_t shared_bytes = 0;  // of every LDM, for __thread_local_share
  std::size_t slot_bytes = 0;
  int slaves_of_group = 0;
  int num_threads = 0;  // of later spawns
  bool check = false;

  // Host threads that have launched slaves or taken a lock, and the waits of
  // those that wait.
  int masters = 0;
  std::vector<const MasterWait*> master_waits;
  std::uint64_t packets = 0;  // sent by putr and putc

  // Check mode: slaves run one at a time, and not before the master waits.
  Slave* turn = nullptr;
  bool held = false;
  int live = 0;
  Order order;

  Slave& slave(int group, int id) noexcept {
    return *groups[static_cast<std::size_t>(group)]
                .slaves[static_cast<std::size_t>(id)];
  }
  int slaves_per_group() const noexcept { return slaves_of_group; }
};

// world() makes the machine, core group 0 parked, at the first call. It is
// never destroyed: slaves may run while the process exits.
World& world();
bool has_world() noexcept;
// start_groups() starts the threads of the core groups of `mask`, once.
void start_groups(unsigned mask);
// count_master() counts the calling host thread as one that may still act.
// Under the world's mutex.
void count_master();
// own_group() is the core group of the calling host thread: of athread_spawn(),
// athread_join() and what else names none. A thread that launches (`take`) gets
// the lowest that is no other's; one without its own uses core group 0. Under
// the world's mutex.
int own_group(bool take);
// restart_slaves() gives a child of fork() threads for the slaves that were
// launched and had not begun.
void restart_slaves();

// self() is the slave that the calling thread is, or nullptr for a master.
Slave* self() noexcept;
// require_self() ends the program when the master calls `what`.
Slave& require_self(const char* what);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_WORLD_H_
