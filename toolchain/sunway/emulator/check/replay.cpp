// The parent's side of a replay: before a launch begins it forks children that
// run the launch in other orders, and after the join it compares their memory
// with its own. Limits keep the time of all replays small.
#include "toolchain/sunway/emulator/check/replay.h"

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

constexpr unsigned long kSecond = 1000000000;
// Limits without SWAMP_CHECK_SCHEDULES: runs of a launch, slaves of all its
// runs, launches of a function that are all run again, and the time of all
// replays together.
constexpr int kRuns = 3;
constexpr int kFewest = 2;  // runs: the second is interleaved
constexpr int kSlaves = 192;
constexpr unsigned long kMostTime = 3 * kSecond;

struct Replay {
  pid_t child;
  int channel;
  Order order;
};

// State of the running launch, and the time spent on all launches.
struct State {
  std::vector<Replay> replays;
  unsigned long started = 0;
  unsigned long spent = 0;
  std::set<std::pair<SlaveFunction, unsigned>> launched;
};
State& state() {
  static State* const made = new State;
  return *made;
}

// order_of() returns the order of the i-th replay: first the parent's with
// transfers at the other time, then the reverse, then pseudo-random ones. All
// but the first are interleaved: without that a slave runs on until it waits,
// so that no other one comes between its read of a word and its store.
Order order_of(int i) {
  const Order& own = machine().order;
  Order order = own;
  if (i == 0) {
    order.eager = !own.eager;
  } else if (i == 1) {
    order = Order::of_seed(own.seed == 1 ? 0 : 1);
    order.eager = own.eager;
  } else {
    order = Order::of_seed(own.seed + static_cast<std::uint64_t>(i));
  }
  order.interleaved = i > 0;
  return order;
}

// is_untouched() returns whether the join of `mask` waits for a whole launch
// none of whose slaves has begun; *slaves is set to the number of slaves.
bool is_untouched(unsigned mask, int* slaves, SlaveFunction* function) {
  const Machine& all = machine();
  *slaves = 0;
  if (!all.launch_pending || all.turn != nullptr) return false;
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    for (const auto& slave : all.groups[i].slaves) {
      if (!slave->live()) continue;
      if ((mask >> i & 1u) == 0 || slave->wait != &slave->first_turn ||
          all.groups[i].singles) {
        return false;
      }
      ++*slaves;
      *function = slave->function;
    }
  }
  return *slaves != 0;
}

// has_other_threads() returns whether the program has other threads, which
// would not exist in a child.
bool has_other_threads() {
  std::size_t own = 2;  // the master and the watchdog
  for (const Group& group : machine().groups) own += group.slaves.size();
  std::size_t there = 0;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return true;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++there;
  }
  closedir(folder);
  return there > own;
}

int runs_of(unsigned mask) {
  int slaves = 0;
  SlaveFunction function = nullptr;
  if (settings().schedules == 0 || machine().is_replay || reported() ||
      !is_untouched(mask, &slaves, &function)) {
    return 0;
  }
  if (settings().schedules < 0) {
    const bool is_first = state().launched.emplace(function, mask).second;
    if (!is_first || state().spent > kMostTime) return 0;
  }
  // What a child writes into shared memory would be visible outside.
  if (has_other_threads() || shares_memory()) return 0;
  // Times in the results differ from run to run.
  if (settings().schedules < 0 && reads_clock_unseen()) return 0;
  if (settings().schedules >= 0) return settings().schedules;
  return std::clamp(kSlaves / slaves, kFewest, kRuns);
}

// end_child() returns the signal that ended it, or 0.
int end_child(const Replay& replay) {
  close(replay.channel);
  kill(replay.child, SIGKILL);
  int status = 0;
  if (waitpid(replay.child, &status, 0) != replay.child) return 0;
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// compare_replay() returns whether it has reported something.
bool compare_replay(const Replay& replay, Outcome& outcome) {
  if (!outcome.findings.empty()) {
    Finding finding = outcome.findings.front();
    finding.text += order_of_slaves(replay.order);
    report(finding);
    return true;
  }
  const std::vector<Written>* mine = written();
  if (!outcome.done || mine == nullptr) return false;
  const std::vector<Usage> own = usages();
  for (std::size_t i = 0; i < own.size(); ++i) {
    // The results may contain times that the slaves measured.
    if (own[i].clock_reads != outcome.usages[i].clock_reads) return false;
  }
  const std::vector<Difference> found =
      find_differences(*mine, outcome, replay.channel);
  if (found.empty()) return false;
  report_schedule(found, replay.order);
  return true;
}

}  // namespace

void start_replays(unsigned mask) {
  const int runs = runs_of(mask);
  if (runs == 0) return;
  state().started = nanoseconds();
  keep_written(true);
  for (int i = 0; i < runs; ++i) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    const Order order = order_of(i);
    const pid_t parent = getpid();
    // _Fork() runs no fork handlers, which lock mutexes that the master may
    // hold.
    const pid_t child = _Fork();
    if (child == 0) {
      close(ends[0]);
      begin_child(ends[1], order, parent);
      return;
    }
    close(ends[1]);
    if (child < 0) {
      close(ends[0]);
      return;
    }
    state().replays.push_back({child, ends[0], order});
  }
}

void end_replays() {
  if (machine().is_replay) finish_child();
  State& all = state();
  if (all.replays.empty()) return;
  const unsigned long now = nanoseconds();
  const unsigned long elapsed = now - all.started;
  const unsigned long allowed = kSecond + 4 * elapsed;
  // The runs take a multiple of the time that the launch took.
  const bool wanted =
      !reported() && (settings().schedules >= 0 || elapsed <= kMostTime / 2);
  for (const Replay& replay : all.replays) {
    const char go = 1;
    if (wanted) (void)send(replay.channel, &go, 1, MSG_NOSIGNAL);
  }
  for (const Replay& replay : all.replays) {
    if (wanted && !reported()) {
      const unsigned long deadline = settings().schedules < 0
                                         ? now + allowed
                                         : nanoseconds() + 10 * allowed;
      Outcome outcome = receive(replay.channel, deadline);
      if (compare_replay(replay, outcome)) {
        (void)end_child(replay);
        continue;
      }
      const bool ended = outcome.done;
      const int signal = end_child(replay);
      // SIGSYS: its slaves used files, which must not happen twice.
      if (!ended && signal != 0 && signal != SIGKILL && signal != SIGSYS) {
        report_crash(signal, replay.order);
      }
      continue;
    }
    (void)end_child(replay);
  }
  all.replays.clear();
  keep_written(false);
  all.spent += nanoseconds() - now;
}

}  // namespace swamp::sunway::check
