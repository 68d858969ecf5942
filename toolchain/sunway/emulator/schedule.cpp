#include "toolchain/sunway/emulator/schedule.h"

#include <algorithm>

#include "toolchain/sunway/emulator/check/hang.h"
#include "toolchain/sunway/emulator/check/slave_check.h"

namespace swamp::sunway {
namespace {

template <class Visit>
void for_live(Visit visit) {
  for (Group& group : world().groups) {
    if (group.remaining == 0) continue;
    for (auto& slave : group.slaves) {
      if (slave->live) visit(*slave);
    }
  }
}

bool is_ready(const Slave& slave) {
  return slave.wait != nullptr && slave.wait->ready();
}

std::uint64_t next_random() {
  std::uint64_t& state = world().order.lot;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// choose() picks who has the turn next: the lowest for seed 0, the highest for
// seed 1, else one by lot.
Slave* choose() {
  Slave* chosen = nullptr;
  std::uint64_t candidates = 0;
  for_live([&](Slave& slave) {
    if (!is_ready(slave)) return;
    ++candidates;
    const std::uint64_t seed = world().order.seed;
    if (chosen == nullptr || seed == 1 ||
        (seed > 1 && next_random() % candidates == 0)) {
      chosen = &slave;
    }
  });
  return chosen;
}

// choose_after() picks the next that can run, or nullptr: by number upwards,
// for seed 1 downwards.
Slave* choose_after(const Slave& slave) {
  const bool down = world().order.seed == 1;
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

void pass_turn() {
  World& all = world();
  if (all.held || all.turn != nullptr) return;
  all.turn = choose();
  if (all.turn != nullptr) all.turn->wake.notify_one();
}

// any_master_runs() returns whether a host thread may still do something.
bool any_master_runs() {
  const std::vector<const MasterWait*>& waits = world().master_waits;
  const auto stuck =
      std::count_if(waits.begin(), waits.end(),
                    [](const MasterWait* wait) { return !wait->ready(); });
  return world().masters > stuck;
}

bool all_groups_run() {
  const std::vector<Group>& groups = world().groups;
  return std::all_of(groups.begin(), groups.end(), [](const Group& group) {
    return group.state != Group::State::idle;
  });
}

// end_node_meeting() ends the meeting of all slaves that are launched and not
// joined when all have come. Not while a master may launch more of them: that
// they are late must change nothing.
bool end_node_meeting(bool more_may_come) {
  World& all = world();
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
    default:  // by another slave, if that is still to be started
      return world().groups[static_cast<std::size_t>(slave.group)].singles;
  }
}

}  // namespace

void changed() {
  World& all = world();
  all.master_wake.notify_all();
  if (all.check) {
    pass_turn();
    return;
  }
  for_live([](Slave& slave) {
    if (is_ready(slave)) slave.wake.notify_one();
  });
}

bool yield_turn(Slave& slave) {
  World& all = world();
  Lock lock(all.mutex);
  if (all.turn != &slave) return false;
  // In turn, not by seed: else two who wait would go on for ever.
  Slave* next = choose_after(slave);
  if (next == nullptr) return false;
  slave.wait = &slave.first_turn;
  all.turn = next;
  next->wake.notify_one();
  slave.wake.wait(lock, [&] { return all.turn == &slave; });
  slave.wait = nullptr;
  return true;
}

void require_progress() {
  World& all = world();
  if (all.held) return;
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
      check::report_master_alone(*all.master_waits.back());
    }
    return;
  }
  if (end_node_meeting(master_runs && !all_groups_run())) return;
  if (!master_runs || !master_helps) check::report_hang(waits_for_master);
}

void block(Slave& slave, const Wait& wait, Lock& lock) {
  World& all = world();
  const auto may_run = [&] {
    return wait.ready() && (!all.check || all.turn == &slave);
  };
  if (may_run()) {
    slave.wait = nullptr;
    slave.loose = false;
    return;
  }
  slave.wait = &wait;
  if (all.check) {
    if (all.turn == &slave) all.turn = nullptr;
    pass_turn();
  }
  require_progress();
  slave.wake.wait(lock, may_run);
  slave.wait = nullptr;
  slave.loose = false;
}

void ended(Slave& slave) {
  World& all = world();
  slave.live = false;
  --all.live;
  if (all.turn == &slave) all.turn = nullptr;
  changed();
  require_progress();
}

void release_slaves() {
  World& all = world();
  if (!all.held) return;
  all.held = false;
  pass_turn();
}

void master_waits(const MasterWait& wait, Lock& lock) {
  World& all = world();
  count_master();
  all.master_waits.push_back(&wait);
  release_slaves();
  changed();
  require_progress();
  all.master_wake.wait(lock, wait.ready);
  all.master_waits.erase(
      std::find(all.master_waits.begin(), all.master_waits.end(), &wait));
}

void wait_for_turn(Slave& slave) {
  {
    Lock lock(world().mutex);
    block(slave, slave.first_turn, lock);
  }
  slave.check->regained();
}

}  // namespace swamp::sunway
