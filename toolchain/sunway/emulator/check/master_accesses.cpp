// What the master changes and reads between a spawn and its join. Slaves run
// after the master has reached the join, so memory then is compared with that
// of a child which was forked at the spawn and does nothing. Reads are those of
// the files that spawn: swcc compiles them a second time, too.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/cache.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kPage = 4096;
// More memory takes too long to compare: of a mapping, and in use.
constexpr std::size_t kMostBytes = std::size_t{1} << 32;
constexpr std::size_t kMostPages = (std::size_t{512} << 20) / kPage;

constexpr std::size_t kMostReads = std::size_t{1} << 14;  // ranges
constexpr std::size_t kMostFlags = std::size_t{1} << 14;

struct Range {
  std::uintptr_t begin, end;
  const void* pc;
};
using Ranges = std::vector<Range>;

std::mutex mutex;
pid_t child = -1;  // has memory as it was at the spawn; -1: there is none
const void* spawned_at = nullptr;
std::atomic<bool> any{false};
Ranges& changes() {  // sorted
  static auto* const all = new Ranges;
  return *all;
}
// Begin and end of the words with which the master signals, set since the
// spawn.
using Flags = std::map<std::uintptr_t, std::uintptr_t>;
Flags& flags() {
  static auto* const all = new Flags;
  return *all;
}
// Gap is memory, between two ranges of the lists, that the master neither
// changed nor, with `write`, read: most accesses of a slave are in one gap.
struct Gap {
  std::uintptr_t begin = 0, end = 0;
  bool write = false;
  std::uint64_t version = 0;
};
std::atomic<std::uint64_t> version{1};  // of the lists
std::atomic<bool> records_reads{false};
pthread_t master;  // the thread whose reads are recorded
// Volatile or atomic reads, and calls that do not wait, since its last store of
// a volatile word.
std::atomic<int> polls{0};
Ranges& reads() {  // sorted when the slaves begin
  static auto* const all = new Ranges;
  return *all;
}

void end_child() {
  if (child < 0) return;
  kill(child, SIGKILL);
  (void)waitpid(child, nullptr, __WALL);
  child = -1;
}

// writable() returns the private memory of this process that may be written,
// without the terabytes of AddressSanitizer's shadow.
Ranges writable() {
  Ranges ranges;
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return ranges;
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    char access[5] = "";
    if (std::sscanf(line, "%lx-%lx %4s", &begin, &end, access) == 3 &&
        access[1] == 'w' && access[3] == 'p' && end - begin <= kMostBytes) {
      ranges.push_back({begin, end, nullptr});
    }
  }
  std::fclose(maps);
  return ranges;
}

// compare_bytes() adds the bytes of [begin, begin + bytes) that differ from
// `old`. Fewer than 4 equal bytes between two others count as changed, so that
// a vector of numbers is one range.
void compare_bytes(std::uintptr_t begin, std::size_t bytes,
                   const std::byte* now, const std::byte* old) {
  if (std::memcmp(now, old, bytes) == 0) return;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (now[i] == old[i]) continue;
    const std::uintptr_t at = begin + i;
    if (!changes().empty() && at - changes().back().end < 4) {
      changes().back().end = at + 1;
    } else {
      changes().push_back({at, at + 1, spawned_at});
    }
  }
}

// read_memory() returns how many bytes of a process it has read. They end
// before memory that the process does not have.
std::size_t read_memory(pid_t process, std::uintptr_t begin, std::size_t bytes,
                        std::byte* out) {
  const iovec to{out, bytes};
  const iovec from{reinterpret_cast<void*>(begin), bytes};
  const ssize_t count = process_vm_readv(process, &to, 1, &from, 1, 0);
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

// compare() fills the list of changes, or leaves it empty if that takes long or
// is not permitted.
void compare() {
  constexpr std::size_t kPages = 64;  // compared at once
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) return;
  std::vector<std::byte> now(kPages * kPage);
  std::vector<std::byte> old(kPages * kPage);
  std::uint64_t entries[kPages];
  std::size_t pages = 0;
  const pid_t self = getpid();
  bool complete = true;
  for (const Range& range : writable()) {
    for (std::uintptr_t at = range.begin; at < range.end && complete;) {
      const std::size_t most = std::min(kPages, (range.end - at) / kPage);
      complete = pread(pagemap, entries, most * sizeof entries[0],
                       static_cast<off_t>(at / kPage * sizeof entries[0])) ==
                 static_cast<ssize_t>(most * sizeof entries[0]);
      // Pages that are neither in memory nor swapped were never written.
      const auto is_used = [](std::uint64_t entry) { return entry >> 62 != 0; };
      const std::uint64_t* const last = entries + most;
      const std::uint64_t* const begin =
          std::find_if<const std::uint64_t*>(entries, last, is_used);
      const std::uint64_t* const end = std::find_if_not(begin, last, is_used);
      const std::uintptr_t first =
          at + static_cast<std::size_t>(begin - entries) * kPage;
      const std::size_t bytes = static_cast<std::size_t>(end - begin) * kPage;
      at = first + bytes;
      if (bytes == 0) continue;
      pages += bytes / kPage;
      complete = complete && pages < kMostPages;
      // Memory that was mapped after the spawn is not in the child. The own
      // memory is read in the same way, because AddressSanitizer would not let
      // this process read its shadow.
      const std::size_t both =
          std::min(read_memory(child, first, bytes, old.data()),
                   read_memory(self, first, bytes, now.data()));
      compare_bytes(first, both, now.data(), old.data());
    }
  }
  close(pagemap);
  if (!complete) changes().clear();
}

// sort_reads() sorts the reads and makes one of those that overlap.
void sort_reads() {
  std::sort(reads().begin(), reads().end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  Ranges kept;
  for (const Range& range : reads()) {
    if (!kept.empty() && range.begin < kept.back().end) {
      kept.back().end = std::max(kept.back().end, range.end);
    } else {
      kept.push_back(range);
    }
  }
  reads() = std::move(kept);
}

// first_of() returns the first range that overlaps [begin, end), or nullptr.
const Range* first_of(const Ranges& ranges, std::uintptr_t begin,
                      std::uintptr_t end) {
  const auto found = std::partition_point(
      ranges.begin(), ranges.end(),
      [=](const Range& range) { return range.end <= begin; });
  return found == ranges.end() || found->begin >= end ? nullptr : &*found;
}

// remove() removes [begin, end) from the ranges.
void remove(Ranges& ranges, std::uintptr_t begin, std::uintptr_t end) {
  const auto first = std::partition_point(
      ranges.begin(), ranges.end(),
      [=](const Range& range) { return range.end <= begin; });
  const auto last = std::partition_point(
      first, ranges.end(),
      [=](const Range& range) { return range.begin < end; });
  if (first == last) return;
  Ranges kept;
  if (first->begin < begin) kept.push_back({first->begin, begin, first->pc});
  const Range& end_range = *(last - 1);
  if (end_range.end > end) kept.push_back({end, end_range.end, end_range.pc});
  ranges.insert(ranges.erase(first, last), kept.begin(), kept.end());
}

void forget_all() {
  records_reads = false;
  changes().clear();
  flags().clear();
  reads().clear();
  any = false;
  ++version;
}

}  // namespace

void remember_memory(const void* pc) {
  static auto* const seen = new std::set<const void*>;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  // What the master changes between two spawns the second may use.
  const bool goes_on = child >= 0;
  end_child();
  forget_all();
  if (!machine().launch_pending || machine().is_replay ||
      settings().schedules == 0 ||
      (!seen->insert(pc).second && settings().schedules < 0 && !goes_on)) {
    return;
  }
  spawned_at = pc;
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  const pid_t parent = getpid();
  // A fork whose end is not visible to the program's wait().
  child = static_cast<pid_t>(
      syscall(SYS_clone, 0UL, nullptr, nullptr, nullptr, 0UL));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  master = pthread_self();
  polls = 0;
  records_reads = child > 0;
}

void master_sets_flag(const volatile void* address, std::size_t bytes) {
  // A signal handler may set a flag, too, and must not wait for itself.
  static thread_local bool inside = false;
  if (std::exchange(inside, true)) return;
  args_written(address, bytes);
  {
    const OwnAllocations own;
    const std::lock_guard<std::mutex> lock(mutex);
    if (child >= 0 && flags().size() < kMostFlags) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      std::uintptr_t& end = flags()[begin];
      end = std::max(end, begin + bytes);
    }
  }
  inside = false;
}

namespace {

// check_ldm() reports an access of the master to LDM.
void check_ldm(const volatile void* address, std::size_t bytes,
               const char* verb, const void* pc) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin < ldm_begin.load(std::memory_order_relaxed) ||
      begin >= ldm_end.load(std::memory_order_relaxed) ||
      ldm_owner(begin) == nullptr) {
    return;
  }
  const OwnAllocations own;
  report({"ldm-range", pc, nullptr,
          verb + std::to_string(bytes) + " bytes at " + describe(begin) +
              ": a slave's address of LDM means other memory to the master; "
              "let the slave put the data into main memory"});
}

}  // namespace

void master_polls() noexcept { polls.fetch_add(1, std::memory_order_relaxed); }

bool wants_to_wait() noexcept {
  constexpr int kMostPolls = 100;
  return records_reads && polls < kMostPolls;
}

void master_stores(const volatile void* address, std::size_t bytes,
                   const void* pc, bool is_volatile) {
  check_ldm(address, bytes, "writes ", pc);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  changes_main(begin, begin + bytes, nullptr, pc);
  if (!is_volatile) return;
  polls.store(0, std::memory_order_relaxed);
  master_sets_flag(address, bytes);
}

void master_reads(const volatile void* address, std::size_t bytes,
                  const void* pc, bool is_volatile) {
  check_ldm(address, bytes, "reads ", pc);
  if (is_volatile) return master_polls();
  if (!records_reads.load(std::memory_order_relaxed)) return;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!records_reads || pthread_equal(master, pthread_self()) == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + bytes;
  // The reads of one instruction in a loop become one range.
  constexpr std::size_t kRecent = 8;
  const std::size_t count = reads().size();
  for (std::size_t i = count; i-- > 0 && i + kRecent >= count;) {
    Range& last = reads()[i];
    if (last.pc != pc || begin < last.begin || begin > last.end) continue;
    last.end = std::max(last.end, end);
    return;
  }
  if (reads().size() < kMostReads) reads().push_back({begin, end, pc});
}

void find_master_accesses() {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  if (child < 0) return;
  records_reads = false;
  // If slaves have begun, the changes may be theirs.
  if (machine().launch_pending && machine().turn == nullptr) {
    compare();
    if (flags().size() == kMostFlags) changes().clear();
    sort_reads();
  } else {
    reads().clear();
  }
  end_child();
  any = !changes().empty() || !reads().empty();
  ++version;
}

void forget_master_accesses() {
  const std::lock_guard<std::mutex> lock(mutex);
  end_child();
  forget_all();
}

void forget_master_accesses(std::uintptr_t begin, std::uintptr_t end) {
  if (!any.load(std::memory_order_relaxed)) return;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  remove(changes(), begin, end);
  remove(reads(), begin, end);
  any = !changes().empty() || !reads().empty();
}

void acquired_from_master(std::uintptr_t begin, std::uintptr_t end) {
  if (!any.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(mutex);
  if (first_of(changes(), begin, end) != nullptr) forget_all();
}

namespace {

bool has_flag(std::uintptr_t begin, std::uintptr_t end) {
  auto next = flags().lower_bound(end);
  return next != flags().begin() && (--next)->second > begin;
}

// narrow() reduces a gap, which contains `at`, to what is between two ranges.
void narrow(Gap& gap, const Ranges& ranges, std::uintptr_t at) {
  const auto next =
      std::partition_point(ranges.begin(), ranges.end(),
                           [=](const Range& range) { return range.end <= at; });
  if (next != ranges.begin()) gap.begin = std::max(gap.begin, (next - 1)->end);
  if (next != ranges.end()) gap.end = std::min(gap.end, next->begin);
}

}  // namespace

void check_master_accesses(const Slave& slave, std::uintptr_t begin,
                           std::uintptr_t end, bool write, const void* pc) {
  static thread_local Gap gap;
  if (!any.load(std::memory_order_relaxed) ||
      (begin >= gap.begin && end <= gap.end && (gap.write || !write) &&
       gap.version == version.load(std::memory_order_relaxed))) {
    return;
  }
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  const Range* found = first_of(changes(), begin, end);
  const bool changed = found != nullptr;
  if (!changed && write) found = first_of(reads(), begin, end);
  if (found == nullptr) {
    gap = {0, ~std::uintptr_t{0}, write, version};
    narrow(gap, changes(), begin);
    if (write) narrow(gap, reads(), begin);
    return;
  }
  if (changed && has_flag(begin, end)) return forget_all();
  // check_args() reports it.
  if (changed && !write &&
      are_args(std::max(begin, found->begin), std::min(end, found->end))) {
    return;
  }
  const std::string where = describe(std::max(begin, found->begin));
  report({"overlap", pc, &slave,
          (write ? "writes " : "reads ") + std::to_string(end - begin) +
              " bytes at " + describe(begin) + ", where the master " +
              (changed ? "changed data (at " + where +
                             ") between the spawn and the join: the result "
                             "depends on which is first; change it before the "
                             "spawn or after the join"
                       : "read data (at " + where +
                             ") between the spawn and the join: it gets the "
                             "old or the new data; read it after the join"),
          found->pc});
}

}  // namespace swamp::sunway::check
