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
#include <cerrno>
#include <map>
#include <set>
#include <string>
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

// Launches is how often a function was launched, and in how many launches run
// again; for one of the others, why not.
struct Launches {
  int all = 0;
  int again = 0;
  const char* why = nullptr;
};

// State of the running launch, and the time spent on all launches.
struct State {
  std::vector<Replay> replays;
  SlaveFunction function = nullptr;
  unsigned long started = 0;  // in CPU time
  unsigned long spent = 0;
  std::set<std::pair<SlaveFunction, unsigned>> launched;
  std::map<SlaveFunction, Launches> launches;
};
State& state() {
  static State* const made = new State;
  return *made;
}

// order_with() returns the order of a replay with this seed: the parent's with
// transfers at the other time, or another one, which is interleaved: without
// that a slave runs on until it waits, so that no other one comes between its
// read of a word and its store, or takes a part of shared work.
Order order_with(std::uint64_t seed) {
  const Order& own = machine().order;
  Order order = Order::of_seed(seed);
  if (seed <= 1) order.eager = own.eager;
  order.interleaved = seed != own.seed;
  if (!order.interleaved) {
    order = own;
    order.eager = !own.eager;
  }
  return order;
}

// order_of() returns the order of the i-th replay: first that with transfers at
// the other time, then the reverse, then pseudo-random ones.
Order order_of(int i) {
  if (settings().schedule_seed) return order_with(*settings().schedule_seed);
  const std::uint64_t own = machine().order.seed;
  if (i == 1) return order_with(own == 1 ? 0 : 1);
  return order_with(own + static_cast<std::uint64_t>(i));
}

// why_touched() returns nullptr if the join of `mask` waits for a whole launch
// none of whose slaves has begun; *slaves is set to the number of slaves.
const char* why_touched(unsigned mask, int* slaves) {
  const Machine& all = machine();
  *slaves = 0;
  const char* why = !all.launch_pending || all.turn != nullptr
                        ? "slaves began before the join"
                        : nullptr;
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    for (const auto& slave : all.groups[i].slaves) {
      if (!slave->live()) continue;
      if (all.groups[i].singles) {
        why = "started by athread_create";
      } else if ((mask >> i & 1u) == 0) {
        why = "the join is not for all that run";
      } else if (slave->wait != &slave->first_turn) {
        why = "slaves began before the join";
      }
      ++*slaves;
      state().function = slave->function;
    }
  }
  return why;
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

// runs_of() returns how often the launch is to be run again, or sets *why.
int runs_of(unsigned mask, const char** why) {
  const bool chosen = settings().schedules < 0;
  int slaves = 0;
  *why = why_touched(mask, &slaves);
  if (slaves == 0 || *why != nullptr) return 0;
  const auto refuse = [&](const char* text) {
    *why = text;
    return 0;
  };
  if (settings().schedules == 0) return refuse("SWAMP_CHECK_SCHEDULES=0");
  if (reported()) return refuse("something was reported before");
  if (chosen) {
    if (!state().launched.emplace(state().function, mask).second) {
      return refuse("only the first launch is");
    }
    if (state().spent > kMostTime) return refuse("3 s are spent");
  }
  if (has_other_threads()) return refuse("the program has other threads");
  // What a child writes there would be visible outside.
  if (shares_memory()) return refuse("the program has shared memory");
  if (!has_ldm_files()) return refuse("the program closed the files of LDM");
  // Times in the results differ from run to run.
  if (chosen && reads_clock_unseen()) {
    return refuse("slaves read the cycle counter by assembly");
  }
  return chosen ? std::clamp(kSlaves / slaves, kFewest, kRuns)
                : settings().schedules;
}

// any_asynchronous() returns whether slaves began transfers that are waited
// for.
bool any_asynchronous() {
  for (const Group& group : machine().groups) {
    for (const auto& slave : group.slaves) {
      if (slave->asynchronous) return true;
    }
  }
  return false;
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
  if (machine().is_replay) return;
  const char* why = nullptr;
  state().function = nullptr;
  const int runs = runs_of(mask, &why);
  if (state().function != nullptr) {
    Launches& launches = state().launches[state().function];
    ++launches.all;
    if (launches.why == nullptr) launches.why = why;
  }
  if (runs == 0) return;
  state().started = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
  keep_written(true);
  for (int i = 0; i < runs; ++i) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) break;
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
      break;
    }
    state().replays.push_back({child, ends[0], order});
  }
  std::vector<Replay> copies;  // those with an LDM of their own
  for (const Replay& replay : state().replays) {
    char copied = 0;
    while (recv(replay.channel, &copied, 1, 0) < 0 && errno == EINTR) {
    }
    if (copied != 0) {
      copies.push_back(replay);
    } else {
      (void)end_child(replay);
    }
  }
  state().replays = std::move(copies);
  Launches& launches = state().launches[state().function];
  if (state().replays.empty() && launches.why == nullptr) {
    launches.why = "the process cannot be copied";
  }
}

void end_replays() {
  if (machine().is_replay) finish_child();
  State& all = state();
  if (all.replays.empty()) return;
  const unsigned long now = nanoseconds();
  const unsigned long elapsed =
      nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - all.started;
  const unsigned long allowed = kSecond + 4 * elapsed;
  // The runs take a multiple of the time that the launch took.
  const bool wanted =
      !reported() && (settings().schedules >= 0 || elapsed <= kMostTime / 2);
  for (const Replay& replay : all.replays) {
    const char go = 1;
    if (wanted) (void)send(replay.channel, &go, 1, MSG_NOSIGNAL);
  }
  Launches& launches = all.launches[all.function];
  if (wanted) {
    ++launches.again;
  } else if (launches.why == nullptr) {
    launches.why = reported() ? "something was reported" : "it takes too long";
  }
  const bool any_waits = any_asynchronous() || settings().schedule_seed;
  bool any_file = false;
  const char* why_not = nullptr;
  for (const Replay& replay : all.replays) {
    if (wanted && !any_file && !reported() &&
        (replay.order.interleaved || any_waits)) {
      Outcome outcome =
          receive(replay.channel, replay.child,
                  settings().schedules < 0 ? allowed : 10 * allowed);
      if (compare_replay(replay, outcome)) {
        (void)end_child(replay);
        continue;
      }
      const bool ended = outcome.done;
      const int signal = end_child(replay);
      // SIGSYS: its slaves used files, which must not happen twice.
      any_file = signal == SIGSYS;
      if (any_file) why_not = "slaves use files";
      if (!ended && signal == SIGKILL) why_not = "another order takes too long";
      if (!ended && signal != 0 && signal != SIGKILL && signal != SIGSYS) {
        report_crash(signal, replay.order);
      }
      continue;
    }
    (void)end_child(replay);
  }
  if (why_not != nullptr) {
    --launches.again;
    launches.why = why_not;
  }
  all.replays.clear();
  keep_written(false);
  all.spent += nanoseconds() - now;
}

void print_replays() {
  constexpr std::size_t kMost = 4;  // functions of each kind
  std::string again;
  std::string others;
  std::size_t count = 0;
  for (const auto& [function, launches] : state().launches) {
    if (count++ == kMost) {
      others += "; " + std::to_string(state().launches.size() - kMost) +
                " more functions";
    }
    if (count > kMost) break;
    const std::string name =
        name_of_function(reinterpret_cast<const void*>(function));
    const auto add = [&](std::string& to, int number) {
      to += (to.empty() ? "" : ", ") + name + " (" + std::to_string(number) +
            " of " + std::to_string(launches.all);
    };
    if (launches.again != 0) {
      add(again, launches.again);
      again += ")";
    }
    if (launches.again == launches.all) continue;
    add(others, launches.all - launches.again);
    others += std::string(": ") + launches.why + ")";
  }
  if (count == 0) return;
  print_line("swamp: schedules: launches run again in other orders: " +
             (again.empty() ? "none" : again) +
             (others.empty() ? "" : "; not: " + others));
}

}  // namespace swamp::sunway::check
