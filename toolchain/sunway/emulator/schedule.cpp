// In check mode one slave at a time has the turn. block() gives it to a slave
// that choose() picks, until the wait is ready; if no slave and no master can
// go on, the program ends with a report. In copy mode only the last rule
// remains.
#include "toolchain/sunway/emulator/schedule.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway {
namespace {

template <class Visit>
void for_live(Visit visit) {
  for (Group& group : machine().groups) {
    if (group.remaining == 0) continue;
    for (auto& slave : group.slaves) {
      if (slave->live()) visit(*slave);
    }
  }
}

bool is_ready(const Slave& slave) {
  return slave.wait != nullptr && slave.wait->ready();
}

std::uint64_t next_random() {
  std::uint64_t& state = machine().order.random_state;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// choose() picks the slave that gets the turn next: the lowest for seed 0, the
// highest for seed 1, otherwise a pseudo-random one.
Slave* choose() {
  Slave* chosen = nullptr;
  std::uint64_t candidates = 0;
  for_live([&](Slave& slave) {
    if (!is_ready(slave)) return;
    ++candidates;
    const std::uint64_t seed = machine().order.seed;
    if (chosen == nullptr || seed == 1 ||
        (seed > 1 && next_random() % candidates == 0)) {
      chosen = &slave;
    }
  });
  return chosen;
}

// choose_after() picks the next slave that can run, or nullptr, in the order of
// numbers; for seed 1 downwards.
Slave* choose_after(const Slave& slave) {
  const bool down = machine().order.seed == 1;
  Slave* first = nullptr;
  Slave* next = nullptr;
  bool passed = false;
  for_live([&](Slave& other) {
    if (&other == &slave) {
      passed = true;
    } else if (is_ready(other)) {
      if (first == nullptr || (down && passed)) first = &other;
      if (passed != down && (next == nullptr || down)) next = &other;
    }
  });
  return next != nullptr ? next : first;
}

// give_turn() also starts the slave's thread, if this is its first turn: if all
// threads started at the launch, each would only begin to wait for its turn.
void give_turn(Slave& slave) {
  machine().turn = &slave;
  if (std::exchange(slave.started, true)) {
    slave.wake.notify_one();
  } else {
    sem_post(&slave.start);
  }
}

void pass_turn() {
  Machine& all = machine();
  if (all.launch_pending || all.exiting != 0 || all.turn != nullptr) return;
  if (Slave* const next = choose()) give_turn(*next);
}

// any_master_runs() returns whether a host thread may still do something.
bool any_master_runs() {
  const std::vector<const MasterWait*>& waits = machine().master_waits;
  const auto stuck =
      std::count_if(waits.begin(), waits.end(),
                    [](const MasterWait* wait) { return !wait->ready(); });
  return machine().masters > stuck;
}

bool all_groups_run() {
  const std::vector<Group>& groups = machine().groups;
  return std::all_of(groups.begin(), groups.end(), [](const Group& group) {
    return group.state != Group::State::idle;
  });
}

// end_node_barrier() ends the barrier of all slaves that are launched and not
// joined after all have arrived, but not while a master may launch more of
// them: a late launch must not change the result.
bool end_node_barrier(bool more_may_come) {
  Machine& all = machine();
  int members = 0;
  for (const Group& group : all.groups) {
    if (group.state != Group::State::idle) {
      members += static_cast<int>(group.slaves.size());
    }
  }
  if (more_may_come || members == 0 || all.node.arrived < members) return false;
  all.node.arrived = 0;
  ++all.node.generation;
  changed();
  return true;
}

// master_may_end() returns whether a master that runs could end the wait.
bool master_may_end(const Slave& slave) {
  switch (slave.wait->kind) {
    case Wait::Kind::master:
    case Wait::Kind::lock:
      return true;
    case Wait::Kind::node:
      return !all_groups_run();
    default:  // another slave ends it, which the master may still start
      return machine().groups[static_cast<std::size_t>(slave.group)].singles;
  }
}

}  // namespace

void changed() {
  Machine& all = machine();
  all.master_wake.notify_all();
  if (all.check) {
    pass_turn();
    return;
  }
  for_live([](Slave& slave) {
    if (is_ready(slave)) slave.wake.notify_one();
  });
}

bool yield_turn(Slave& slave, bool by_seed) {
  Machine& all = machine();
  Lock lock(all.mutex);
  if (all.turn != &slave) return false;
  // Otherwise round robin, because two waiting slaves could alternate forever.
  Slave* next = by_seed && all.order.seed > 1 ? choose() : choose_after(slave);
  if (next == nullptr) return false;
  slave.wait = &slave.first_turn;
  give_turn(*next);
  slave.wake.wait(lock, [&] { return all.turn == &slave; });
  slave.wait = nullptr;
  return true;
}

void require_progress() {
  Machine& all = machine();
  if (all.launch_pending || all.exiting != 0) return;
  bool stuck = true;
  bool waits_for_master = false;
  bool master_helps = false;
  for_live([&](Slave& slave) {
    if (slave.wait == nullptr || slave.wait->ready()) {
      stuck = false;
      return;
    }
    if (slave.wait->kind == Wait::Kind::master) waits_for_master = true;
    if (master_may_end(slave)) master_helps = true;
  });
  if (!stuck) return;
  const bool master_runs = any_master_runs();
  if (all.live == 0) {
    if (!master_runs && !all.master_waits.empty()) {
      report_master_alone(*all.master_waits.back());
    }
    return;
  }
  if (end_node_barrier(master_runs && !all_groups_run())) return;
  if (!master_runs || !master_helps) report_hang(waits_for_master);
}

void block(Slave& slave, const Wait& wait, Lock& lock) {
  Machine& all = machine();
  const auto may_run = [&] {
    return wait.ready() && (!all.check || all.turn == &slave);
  };
  if (may_run()) {
    slave.wait = nullptr;
    slave.state = SlaveState::running;
    return;
  }
  slave.wait = &wait;
  if (all.check) {
    if (all.turn == &slave) all.turn = nullptr;
    pass_turn();
  }
  require_progress();
  ++all.waiting;
  slave.wake.wait(lock, may_run);
  --all.waiting;
  slave.wait = nullptr;
  slave.state = SlaveState::running;
}

void ended(Slave& slave) {
  Machine& all = machine();
  slave.state = SlaveState::idle;
  --all.live;
  if (all.turn == &slave) all.turn = nullptr;
  changed();
  require_progress();
}

void release_slaves() {
  Machine& all = machine();
  if (!all.launch_pending) return;
  all.launch_pending = false;
  pass_turn();
}

void master_waits(const MasterWait& wait, Lock& lock) {
  Machine& all = machine();
  count_master();
  if (all.exiting == gettid()) all.exiting = 0;
  all.master_waits.push_back(&wait);
  release_slaves();
  changed();
  require_progress();
  all.master_wake.wait(lock, wait.ready);
  all.master_waits.erase(
      std::find(all.master_waits.begin(), all.master_waits.end(), &wait));
}

void take_turn_from(Slave& slave) {
  slave.state = SlaveState::without_turn;
  slave.observer->turn_lost();
  machine().turn = nullptr;
}

KeepTurn::KeepTurn(Slave& slave) : slave_(slave) {
  while (slave.observer && !slave.keeps_turn) {
    take_turn(slave);
    const Lock lock(machine().mutex);
    slave.keeps_turn = slave.state != SlaveState::without_turn;
  }
}

void stop_slaves() {
  constexpr unsigned long kLongest = 1000000000;
  constexpr auto kTick = std::chrono::milliseconds(1);
  Machine& all = machine();
  const unsigned long deadline = nanoseconds() + kLongest;
  // A signal handler that ends the process may have interrupted the owner.
  Lock lock(all.mutex, std::try_to_lock);
  for (; !lock.owns_lock(); (void)lock.try_lock()) {
    if (nanoseconds() > deadline) return;
    std::this_thread::sleep_for(kTick);
  }
  all.exiting = gettid();
  Slave* running = all.turn;
  if (running != nullptr && running != self()) {
    if (running->wait == nullptr) take_turn_from(*running);
    all.turn = nullptr;
  }
  const auto any_runs = [] {
    bool runs = false;
    for_live([&](Slave& slave) {
      runs = runs || (slave.wait == nullptr && &slave != self());
    });
    return runs;
  };
  while (any_runs() && (is_reporting() || nanoseconds() < deadline)) {
    lock.unlock();
    std::this_thread::sleep_for(kTick);
    lock.lock();
  }
}

void wait_for_turn(Slave& slave) {
  {
    Lock lock(machine().mutex);
    block(slave, slave.first_turn, lock);
  }
  slave.observer->turn_regained();
}

}  // namespace swamp::sunway
