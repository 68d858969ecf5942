// The emulated chip: core groups of slaves, and the master.
#ifndef SWAMP_SUNWAY_EMULATOR_MACHINE_H_
#define SWAMP_SUNWAY_EMULATOR_MACHINE_H_

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

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
#include <utility>
#include <vector>

#include "runtime/predict/cost_model.h"
#include "toolchain/sunway/emulator/ldm.h"
#include "toolchain/sunway/emulator/observer.h"

// Marks functions and variables that programs linked by swcc use.
#define SWAMP_SUNWAY_API __attribute__((visibility("default")))
// The place in the program's sources that called the calling function.
#define SWAMP_SUNWAY_CALLER() __builtin_return_address(0)

// The slave's identity as the program's headers declare it.
extern "C" {
SWAMP_SUNWAY_API extern __thread char _PEN;
SWAMP_SUNWAY_API extern __thread char _ROW;
SWAMP_SUNWAY_API extern __thread char _COL;
SWAMP_SUNWAY_API extern __thread char _CGN;
SWAMP_SUNWAY_API extern __thread int _MYID;
SWAMP_SUNWAY_API extern __thread int _cache_size;
SWAMP_SUNWAY_API extern __thread int _ldm_share_mode;
SWAMP_SUNWAY_API extern __thread int _ldm_share_size;
}

namespace swamp::sunway {

inline constexpr int kRowLength = 8;

// Barrier counts arrivals; all under the machine's mutex.
struct Barrier {
  int size = 0;
  int arrived = 0;
  std::uint64_t generation = 0;

  // arrive() returns the generation whose end the caller has to wait for.
  std::uint64_t arrive() noexcept {
    const std::uint64_t mine = generation;
    if (++arrived == size) {
      arrived = 0;
      ++generation;
    }
    return mine;
  }
  bool passed(std::uint64_t mine) const noexcept { return generation != mine; }
};

using SlaveFunction = void (*)(void*);

// Wait describes what a blocked slave waits for, and where.
struct Wait {
  enum class Kind { turn, reply, sync, packet, node, master, lock };
  Kind kind;
  const void* pc;
  const char* what;  // "ssync_array"
  std::function<bool()> ready;
  volatile const void* reply = nullptr;
  int value = 0;
};

// MasterWait describes what a host thread waits for, and where. ready() must
// have no side effects: other threads evaluate it, too.
struct MasterWait {
  Wait::Kind kind;
  const void* pc;
  const char* what;  // "athread_join"
  std::function<bool()> ready;
};

// Counters are what one slave did, for the cost model.
struct Counters : predict::Traffic {
  std::uint64_t syncs = 0;
  std::uint64_t get_waits =
      0;  // for gets, while the slave has no other in flight
  // Check mode: floating-point operations, and loads and stores of any memory,
  // in halves: one of up to 16 bytes of a vector is a half.
  std::uint64_t flops = 0, half_accesses = 0;

  void add(const Counters& more) noexcept {
    Traffic::add(more);
    syncs += more.syncs;
    get_waits += more.get_waits;
    flops += more.flops;
    half_accesses += more.half_accesses;
  }
};

// SlaveState is what a slave does. Waiting is not a state: see Slave::wait.
enum class SlaveState {
  idle,          // not launched, or its function has returned
  running,       // in its function; it may wait for something
  sending,       // in a send, while the receivers run first
  without_turn,  // check mode: lost the turn in a loop that makes no calls;
                 // runs concurrently until its next access or call
};

struct Slave;

// Packet is one message of register communication, read by getr or getc.
struct Packet {
  std::array<std::byte, 64> bytes;
  std::uint64_t number;  // of all packets
  const Slave* sender;
  const void* pc;
};

// The size of a slot, and the distance of two slots of a core group: it leaves
// the bits of an address free in which programs put the number of another
// slave. `address | id << 20 | 1L << 45` is the same place in the LDM of slave
// `id`: there the memory of all slots is mapped again, for each slave. Numbers
// up to 127 that no slave has lead to no memory.
inline std::size_t slot_bytes = 0;
inline constexpr std::size_t kSlotDistance = std::size_t{1} << 27;
inline constexpr std::size_t kRemoteSlave = std::size_t{1} << 20;
inline constexpr std::uintptr_t kRemoteBit = std::uintptr_t{1} << 45;
inline constexpr const char* kLdmFile = "swamp-ldm";  // in /proc/self/maps

// has_remote_places() returns whether slots are small enough for that: it is
// false with a SWAMP_LDM_BYTES above 256 KiB.
inline bool has_remote_places() { return slot_bytes <= kRemoteSlave; }

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
  const void* loop_pc = nullptr;   // of a loop on one word, since that call
  LdmHeap heap;
  pthread_t thread = {};
  sem_t start = {};
  sem_t ready = {};
  Counters counters;  // of this launch
  // SWAMP_PREDICT=lines: what was counted up to each place, and not above.
  std::map<const void*, Counters> places;
  std::atomic<std::uint64_t> rma_received{0};  // cycles, of this launch
  // The reply word of the last get, if it was not waited for, and its value
  // then.
  const volatile void* last_get = nullptr;
  int last_get_value = 0;
  std::uint64_t cycle = 0;              // of its clock, in check mode
  std::uint64_t clock_reads = 0;        // of this launch
  std::uint64_t atomic_operations = 0;  // locks and atomics of this launch
  bool asynchronous = false;  // check mode: it began transfers in this launch
                              // that it or others have to wait for
  int gave_way = 0;           // check mode: at locks and atomics of this launch
  unsigned long receiver_ns = 0;  // spent in this launch to let receivers run
  // Mode copy: see polls.h.
  std::atomic<unsigned> arrivals{0};
  std::atomic<bool> naps{false};
  // Written under the machine's mutex.
  std::atomic<SlaveState> state{SlaveState::idle};
  std::atomic<bool> keeps_turn{false};      // see KeepTurn
  std::unique_ptr<SlaveObserver> observer;  // in check mode

  // Under the machine's mutex.
  SlaveFunction function = nullptr;
  void* argument = nullptr;
  int thread_number = 0;  // _MYID
  // Its thread runs the function, or may in copy mode: see give_turn().
  bool started = false;
  // The wait of a launched slave. It is set before the thread runs, so that the
  // operating system does not decide which slave is first.
  const Wait first_turn{Wait::Kind::turn, nullptr, "its turn",
                        [] { return true; }};
  const Wait* wait = nullptr;
  std::condition_variable wake;
  // Barriers passed with each slave of its group.
  std::vector<std::uint32_t> peers;
  Barrier with_master{2, 0, 0};
  std::deque<Packet> from_row, from_column;

  bool live() const noexcept { return state != SlaveState::idle; }
  bool in_ldm(const volatile void* address, std::size_t bytes) const noexcept {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) -
                        reinterpret_cast<std::uintptr_t>(slot);
    return offset < slot_bytes && bytes <= slot_bytes - offset;
  }
  // number() returns the slave's index among the slaves of all core groups.
  std::size_t number() const noexcept;
};

// Group is a core group. Under the machine's mutex.
struct Group {
  enum class State { idle, running, ended };
  State state = State::idle;
  bool singles = false;  // started by athread_create() and joined one by one
  bool owned = false;    // by a host thread, whose athread_spawn() uses it
  int launched = 0;
  std::uint64_t spawns = 0;
  int remaining = 0;
  std::vector<std::unique_ptr<Slave>> slaves;
  // Where the slots of its slaves begin; other threads may read it unlocked.
  std::atomic<std::byte*> memory{nullptr};
  int file = -1;  // check mode: what the slots map, until the program closes it
  std::pair<dev_t, ino_t> identity;  // of the file
  Barrier array;
  Barrier master;  // with the master
  std::vector<Barrier> rows, columns;
  // Some slaves of a row (0) or column (1): scope, its number, mask.
  std::map<std::array<int, 3>, Barrier> parts;
  const void* spawned_at = nullptr;
};

// Order is what depends on timing on the real machine: which slave runs first,
// whether a transfer happens when it is issued (eager) or when it is waited
// for, and whether others run before a lock or an atomic operation, and between
// a slave's read of a volatile word and its next store (interleaved).
struct Order {
  std::uint64_t seed = 0;
  bool eager = false;
  bool interleaved = false;
  std::uint64_t random_state = 1;  // for seeds above 1

  static Order of_seed(std::uint64_t seed) noexcept {
    return {seed, seed % 2 == 1, false, seed * 0x9e3779b97f4a7c15u + 1};
  }
};

// Machine is the emulated chip: core groups of slaves, and the master. Each
// slave is an OS thread with its own LDM; the master is the program's own
// thread.
class Machine {
 public:
  std::mutex mutex;
  std::condition_variable master_wake;
  std::vector<Group> groups;
  Barrier node;  // of size 0: see end_node_barrier() in schedule.cpp
  std::size_t ldm_bytes = 0;
  std::size_t static_bytes = 0;  // of the program's TLS, in every LDM
  std::size_t shared_bytes = 0;  // of every LDM, for __thread_local_share
  int slaves_of_group = 0;
  int num_threads = 0;  // of later spawns
  bool check = false;
  std::atomic<bool> initialised{false};  // by athread_init() or the like

  // Host threads that have launched slaves or taken a lock, and the waits of
  // those that are blocked.
  int masters = 0;
  std::vector<const MasterWait*> master_waits;
  std::uint64_t packets = 0;  // sent by putr and putc

  // Check mode: slaves run one at a time, and only after the master waits.
  // launch_pending is true until then.
  Slave* turn = nullptr;
  bool launch_pending = false;
  std::atomic<int> live{0};
  std::atomic<int> waiting{0};  // mode copy: of the live ones
  pid_t process = 0;            // a child of fork() has a copy, but no slaves
  bool is_replay = false;  // a child that runs a launch again: check/replay.h
  pid_t exiting = 0;  // the thread that ends the process: see stop_slaves()
  Order order;

  Slave& slave(int group, int id) noexcept {
    return *groups[static_cast<std::size_t>(group)]
                .slaves[static_cast<std::size_t>(id)];
  }
  int slaves_per_group() const noexcept { return slaves_of_group; }
};

// The LDM of all core groups is in [ldm_begin, ldm_end), with other memory.
inline std::atomic<std::uintptr_t> ldm_begin{~std::uintptr_t{0}};
inline std::atomic<std::uintptr_t> ldm_end{0};

inline std::atomic<Machine*> made_machine{nullptr};
Machine& first_machine();
// machine() makes the machine with the threads of core group 0 at the first
// call. It is never destroyed: slaves may run while the process exits.
inline Machine& machine() {
  Machine* const all = made_machine.load(std::memory_order_acquire);
  return all != nullptr ? *all : first_machine();
}
inline bool has_machine() noexcept {
  return made_machine.load(std::memory_order_acquire) != nullptr;
}
// start_groups() starts the threads of the core groups of `mask`, once.
void start_groups(unsigned mask);
// count_master() counts the calling host thread as one that can release a
// waiting slave. Under the machine's mutex.
void count_master();
// own_group() returns the core group of the calling host thread, for
// athread_spawn(), athread_join() and other calls that name no group. A thread
// that launches (`claim`) gets the lowest that no other thread owns; a thread
// that owns none uses core group 0. Under the machine's mutex.
int own_group(bool claim);
// ldm_owner() returns the slave in whose LDM an address is, or nullptr.
const Slave* ldm_owner(std::uintptr_t address);
// remote_place() returns the place in the LDM of slave `id` that has the
// address `own | id << 20 | 1L << 45`, or nullptr for other addresses.
std::byte* remote_place(std::uintptr_t address);
// why_not_remote() returns what is wrong with such an address that leads to no
// slave's LDM; empty for other addresses.
std::string why_not_remote(std::uintptr_t address);

// copy_ldm() gives a child of fork() an LDM of its own, before the parent's
// slaves continue. It returns false if that fails; it can only be done if
// has_ldm_files().
bool copy_ldm();
bool has_ldm_files();
// restart_slaves() gives it threads for the slaves that were launched and had
// not begun.
void restart_slaves();

// self() returns the slave of the calling thread, or nullptr for a master.
Slave* self() noexcept;
// require_self() ends the program if the master calls `what`.
Slave& require_self(const char* what);

// Range is the set of slaves that take part in a barrier or broadcast.
enum class Range { array, row, column };

// for_range() visits the slaves of `slave`'s array, row or column. For `row`,
// bit r of `mask` adds row r; ~0u means the slave's own row only. The same for
// columns.
template <class Visit>
void for_range(const Slave& slave, Range range, unsigned mask, Visit visit) {
  const Group& group = machine().groups[static_cast<std::size_t>(slave.group)];
  const int own =
      range == Range::row ? slave.id / kRowLength : slave.id % kRowLength;
  if (mask == ~0u) mask = 1u << own;
  for (const auto& other : group.slaves) {
    const int line =
        range == Range::row ? other->id / kRowLength : other->id % kRowLength;
    if (range == Range::array || (mask >> line & 1u) != 0) visit(*other);
  }
}

// wait_at_barrier() returns after all slaves of the range have called it.
void wait_at_barrier(Slave& slave, Range range, const char* call,
                     const void* pc);

// launch() starts `function` on the slaves of the core groups of `mask`.
// Returns 0, or EBUSY when one of them runs or was not joined.
int launch(unsigned mask, void* function, void* argument, const void* pc);
// join() waits for the groups of `mask`; ESRCH when one was not launched.
int join(unsigned mask, const void* pc);

// launch_one() and join_one() are for single slaves of the host thread's own
// core group.
int launch_one(int id, void* function, void* argument, const void* pc);
int join_one(int id, const void* pc);

unsigned all_groups_mask();
// own_group_mask() returns own_group() as a mask.
unsigned own_group_mask(bool claim);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_MACHINE_H_
