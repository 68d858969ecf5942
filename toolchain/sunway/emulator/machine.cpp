// Makes the slaves: slots of equal layout in one mapping, and a thread for each
// slave whose stack and thread-local variables lie in its slot. Core groups
// belong to host threads, the program's first thread having all that no other
// one took.
#include "toolchain/sunway/emulator/machine.h"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/ldm.h"
#include "toolchain/sunway/emulator/polls.h"
#include "toolchain/sunway/emulator/prediction.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/schedule.h"

extern "C" {
__thread char _PEN;
__thread char _ROW;
__thread char _COL;
__thread char _CGN;
__thread int _MYID;
__thread int _cache_size;
__thread int _ldm_share_mode;
__thread int _ldm_share_size;
}

namespace swamp::sunway {
namespace {

constexpr std::size_t kPage = 4096;
// Stack beyond what an LDM can hold: the C library's functions and signal
// frames need more than those of a slave core.
constexpr std::size_t kStackSlack = 252 * 1024;

__thread Slave* this_slave = nullptr;

// HostThread is one of the program's own threads. After it ends, another thread
// may own its core group; the program's first thread never gives up its own.
struct HostThread {
  bool counted = false;
  int group = -1;
  ~HostThread() {
    if (!counted || gettid() == getpid()) return;
    Machine& all = machine();
    const Lock lock(all.mutex);
    --all.masters;
    if (group >= 0) all.groups[static_cast<std::size_t>(group)].owned = false;
  }
};
thread_local HostThread this_host_thread;

std::size_t up_to_page(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// ProgramTls is the program's block of thread-local variables, from the first
// entry of dl_iterate_phdr().
struct ProgramTls {
  std::size_t bytes = 0;
  std::byte* here = nullptr;  // the calling thread's
};

ProgramTls program_tls() {
  ProgramTls tls;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
          *static_cast<ProgramTls*>(out) = {
              info->dlpi_phdr[i].p_memsz,
              static_cast<std::byte*>(info->dlpi_tls_data)};
        }
        return 1;  // only the program itself
      },
      &tls);
  return tls;
}

void identify(const Slave& slave) {
  _PEN = static_cast<char>(slave.id);
  _ROW = static_cast<char>(slave.id / kRowLength);
  _COL = static_cast<char>(slave.id % kRowLength);
  _CGN = static_cast<char>(slave.group);
  _ldm_share_size = static_cast<int>(machine().shared_bytes / 1024);
}

[[gnu::noinline]] void run_function(Slave& slave) {
  // Keeps the slave's frames below the frame of function_begins(), which cannot
  // poison its own frame.
  auto* below = static_cast<volatile char*>(__builtin_alloca(kPage));
  below[0] = 0;
  slave.stack_top =
      const_cast<std::byte*>(reinterpret_cast<volatile std::byte*>(below));
  slave.function(slave.argument);
}

void run_slave(Slave& slave) {
  _MYID = slave.thread_number;
  begin_part(slave);
  if (slave.observer) slave.observer->function_begins();
  run_function(slave);
  if (slave.observer) slave.observer->function_ends();
  end_part(slave);
}

void wait_for(sem_t& semaphore) {
  while (sem_wait(&semaphore) != 0 && errno == EINTR) {
  }
}

void* serve(void* argument) {
  Slave& slave = *static_cast<Slave*>(argument);
  this_slave = &slave;
  identify(slave);
  const std::string name =
      "cg" + std::to_string(slave.group) + "s" + std::to_string(slave.id);
  pthread_setname_np(pthread_self(), name.c_str());  // for debuggers
  slave.statics = program_tls().here;
  if (slave.observer) slave.observer->thread_begins();
  have_signal_stack();
  if (!settings().check) watch_polls();
  sem_post(&slave.ready);
  for (;;) {
    wait_for(slave.start);
    Machine& all = machine();
    if (all.check) {
      Lock lock(all.mutex);
      block(slave, slave.first_turn, lock);
    }
    run_slave(slave);
    const std::lock_guard<std::mutex> lock(all.mutex);
    Group& group = all.groups[static_cast<std::size_t>(slave.group)];
    if (--group.remaining == 0) group.state = Group::State::ended;
    ended(slave);
  }
}

// stack_bytes() is the size of the stack in a slot, above the heap and a guard
// page.
std::size_t stack_bytes(const Machine& all) {
  return slot_bytes - up_to_page(all.ldm_bytes) - kPage;
}

void start_thread(Slave& slave, std::size_t bytes) {
  sem_init(&slave.start, 0, 0);
  sem_init(&slave.ready, 0, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, slave.stack, bytes);
  const int error = pthread_create(&slave.thread, &attributes, &serve, &slave);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    fail(1, "cannot start the thread of slave " + std::to_string(slave.id) +
                " of core group " + std::to_string(slave.group) + ": " +
                std::strerror(error));
  }
}

// reserve() returns where the slots of core group `number` may lie. The bits
// of kRemoteBit and below kSlotDistance are 0.
std::byte* reserve(std::size_t number, std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  for (const std::uintptr_t place : {0x12, 0x16, 0x06}) {
    auto* slots = reinterpret_cast<std::byte*>((place << 40) + number * bytes);
    bool is_free = true;
    for (std::byte* at : {slots, slots + kRemoteBit}) {
      void* got = mmap(at, bytes, PROT_NONE, kFlags, -1, 0);
      is_free = is_free && got == at;
      if (got != at && got != MAP_FAILED) munmap(got, bytes);
    }
    if (is_free) return slots;
  }
  fail(1, "cannot reserve " + std::to_string(2 * bytes >> 30) +
              " GiB of addresses for the LDM of a core group (ulimit -v)");
}

// map_slots() makes the memory of the slots, of `count` slaves, and returns its
// file.
int map_slots(std::byte* slots, std::size_t count) {
  const std::size_t each = std::max(slot_bytes, kRemoteSlave);
  const auto require = [](bool is_made) {
    if (is_made) return;
    fail(1, std::string("cannot allocate the LDM of the slaves: ") +
                std::strerror(errno));
  };
  const int file = memfd_create(kLdmFile, MFD_CLOEXEC);
  require(file >= 0);
  require(ftruncate(file, static_cast<off_t>(count * each)) == 0);
  const auto map = [&](std::byte* at, std::size_t bytes, std::size_t offset) {
    require(mmap(at, bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                 static_cast<off_t>(offset)) == at);
  };
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* slot = slots + i * kSlotDistance;
    map(slot, slot_bytes, i * each);
    mprotect(slot + up_to_page(settings().ldm_bytes), kPage, PROT_NONE);
    if (!has_remote_places()) continue;
    map(slot + kRemoteBit, count * each, 0);
    madvise(slot + kRemoteBit, count * each, MADV_DONTDUMP);
  }
  return file;
}

// identity_of() returns the device and inode of a file, or zeros if it is
// closed.
std::pair<dev_t, ino_t> identity_of(int file) {
  struct stat found {};
  if (fstat(file, &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

void make_group(Machine& all, int number) {
  const Settings& set = settings();
  Group& group = all.groups[static_cast<std::size_t>(number)];
  const auto count = static_cast<std::size_t>(set.slaves_per_group);
  std::byte* memory =
      reserve(static_cast<std::size_t>(number), count * kSlotDistance);
  group.file = map_slots(memory, count);
  group.identity = identity_of(group.file);
  if (!all.check) close(group.file);
  std::vector<std::unique_ptr<Slave>> slaves;
  for (std::size_t i = 0; i < count; ++i) {
    auto slave = std::make_unique<Slave>();
    slave->group = number;
    slave->id = static_cast<int>(i);
    slave->slot = memory + i * kSlotDistance;
    slave->stack = slave->slot + up_to_page(all.ldm_bytes) + kPage;
    slave->heap.set_capacity(all.ldm_bytes - all.static_bytes -
                             all.shared_bytes);
    slave->peers.assign(count, 0);
    if (observer != nullptr) slave->observer = observer->make(*slave);
    start_thread(*slave, stack_bytes(all));
    slaves.push_back(std::move(slave));
  }
  for (const auto& slave : slaves) {
    wait_for(slave->ready);
  }
  const Lock lock(all.mutex);
  group.slaves = std::move(slaves);
  group.memory = memory;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  ldm_begin = std::min<std::uintptr_t>(ldm_begin, begin);
  ldm_end = std::max<std::uintptr_t>(ldm_end, begin + count * kSlotDistance);
}

Machine* make_machine() {
  const Settings& set = settings();
  auto* all = new Machine;
  all->process = getpid();
  all->check = set.check;
  all->order = Order::of_seed(set.seed);
  all->ldm_bytes = set.ldm_bytes;
  all->static_bytes = program_tls().bytes;
  all->shared_bytes = shared_ldm_bytes();
  if (all->static_bytes + all->shared_bytes > all->ldm_bytes) {
    const std::string text =
        "static LDM variables (__thread_local" +
        std::string(all->shared_bytes != 0
                        ? ", and its part of __thread_local_share"
                        : "") +
        ") take " + std::to_string(all->static_bytes + all->shared_bytes) +
        " bytes; a slave of " + set.machine + " has " +
        std::to_string(all->ldm_bytes) + "; the largest are " +
        largest_ldm_variables();
    if (!all->check) fail(1, text);
    report({"ldm-range", program_call(), nullptr, text});
    end_now(kReportedExit);
  }
  all->slaves_of_group = set.slaves_per_group;
  all->num_threads = set.slaves_per_group;
  slot_bytes = up_to_page(all->ldm_bytes) + kPage +
               up_to_page(2 * all->ldm_bytes) + kStackSlack;
  all->groups = std::vector<Group>(static_cast<std::size_t>(set.core_groups));
  return all;
}

}  // namespace

void start_groups(unsigned mask) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  Machine& all = machine();
  watch_crashes();
  const sigset_t own = block_signals();
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    if ((mask >> i & 1u) != 0 && all.groups[i].slaves.empty()) {
      make_group(all, static_cast<int>(i));
    }
  }
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
}

void count_master() {
  if (this_host_thread.counted) return;
  this_host_thread.counted = true;
  ++machine().masters;
}

int own_group(bool claim) {
  int& own = this_host_thread.group;
  if (own >= 0 || !claim) return std::max(own, 0);
  std::vector<Group>& groups = machine().groups;
  const auto free = std::find_if(groups.begin(), groups.end(),
                                 [](const Group& g) { return !g.owned; });
  if (free == groups.end()) return 0;
  free->owned = true;
  own = static_cast<int>(free - groups.begin());
  return own;
}

std::size_t Slave::number() const noexcept {
  return static_cast<std::size_t>(group * settings().slaves_per_group + id);
}

const Slave* ldm_owner(std::uintptr_t address) {
  const Machine& all = machine();
  for (const Group& group : all.groups) {
    const auto begin = reinterpret_cast<std::uintptr_t>(group.memory.load());
    const std::size_t number = (address - begin) / kSlotDistance;
    if (begin != 0 && number < group.slaves.size()) {
      return group.slaves[number].get();
    }
  }
  return nullptr;
}

namespace {

// Remote is the number of a slave, and the offset in its slot, that an address
// has if it is in what belongs to the slots' addresses with kRemoteBit.
struct Remote {
  const std::vector<std::unique_ptr<Slave>>* slaves = nullptr;
  std::size_t id = 0, offset = 0;
};

Remote remote_of(std::uintptr_t address) {
  const std::uintptr_t own = address - kRemoteBit;
  const Slave* slave = ldm_owner(own);
  if (slave == nullptr) return {};
  const std::size_t offset =
      own - reinterpret_cast<std::uintptr_t>(slave->slot);
  return {&machine().groups[static_cast<std::size_t>(slave->group)].slaves,
          offset / kRemoteSlave, offset % kRemoteSlave};
}

}  // namespace

std::byte* remote_place(std::uintptr_t address) {
  const Remote at = remote_of(address);
  return at.slaves != nullptr && at.id < at.slaves->size() &&
                 has_remote_places()
             ? (*at.slaves)[at.id]->slot + at.offset
             : nullptr;
}

std::string why_not_remote(std::uintptr_t address) {
  const Remote at = remote_of(address);
  if (at.slaves == nullptr) return "";
  const std::string what = "an address in another slave's LDM: ";
  if (!has_remote_places()) {
    return what +
           "is only emulated for an LDM of up to 256 KiB "
           "(SWAMP_LDM_BYTES)";
  }
  return at.id < at.slaves->size()
             ? ""
             : what + "got slave " + std::to_string(at.id) +
                   ", expected 0 to " + std::to_string(at.slaves->size() - 1);
}

bool has_ldm_files() {
  const std::vector<Group>& groups = machine().groups;
  return std::all_of(groups.begin(), groups.end(), [](const Group& group) {
    return group.slaves.empty() || identity_of(group.file) == group.identity;
  });
}

bool copy_ldm() {
  for (Group& group : machine().groups) {
    if (group.slaves.empty()) continue;
    const int from = group.file;
    group.file = map_slots(group.memory, group.slaves.size());
    for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0;) {
      const off_t end = lseek(from, at, SEEK_HOLE);
      if (lseek(group.file, at, SEEK_SET) < 0) return false;
      while (at < end) {
        if (sendfile(group.file, from, &at,
                     static_cast<std::size_t>(end - at)) <= 0) {
          return false;
        }
      }
    }
    if (errno != ENXIO) return false;  // which is the end of the data
    close(from);
  }
  return true;
}

void restart_slaves() {
  Machine& all = machine();
  for (Group& group : all.groups) {
    for (const auto& slave : group.slaves) {
      if (!slave->live()) continue;
      // The parent's threads wait on this; they do not exist in the child.
      new (&slave->wake) std::condition_variable;
      const std::vector<std::byte> kept(slave->statics,
                                        slave->statics + all.static_bytes);
      start_thread(*slave, stack_bytes(all));
      wait_for(slave->ready);
      std::copy(kept.begin(), kept.end(), slave->statics);
      slave->started = true;
      sem_post(&slave->start);
    }
  }
}

Machine& first_machine() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  Machine* all = made_machine.load(std::memory_order_relaxed);
  if (all == nullptr) {
    all = make_machine();
    made_machine.store(all, std::memory_order_release);
    start_groups(1);
  }
  return *all;
}

Slave* self() noexcept { return this_slave; }

Slave& require_self(const char* what) {
  if (this_slave == nullptr) {
    fail(1, std::string(what) +
                "() is for slaves; the master called it (or a slave function "
                "was called without athread_spawn)");
  }
  return *this_slave;
}

}  // namespace swamp::sunway
