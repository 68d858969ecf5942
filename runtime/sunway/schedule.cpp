#include "runtime/sunway/schedule.h"

#include "runtime/sunway/check/hang.h"

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

// choose_after() picks the next by number that can run, or nullptr.
Slave* choose_after(const Slave& slave) {
  Slave* first = nullptr;
  Slave* next = nullptr;
  bool passed = false;
  for_live([&](Slave& other) {
    if (&other == &slave) {
      passed = true;
    } else if (is_ready(other)) {
      if (first == nullptr) first = &other;
      if (passed && next == nullptr) next = &other;
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
  if (all.live == 0 && all.master_ready != nullptr && !(*all.master_ready)()) {
    check::report_master_alone();
  }
  if (all.held || all.live == 0) return;
  bool stuck = true;
  bool waits_for_master = false;
  for_live([&](Slave& slave) {
    if (slave.wait == nullptr || slave.wait->ready()) {
      stuck = false;
    } else if (slave.wait->kind == Wait::Kind::master) {
      waits_for_master = true;
    }
  });
  if (!stuck || (waits_for_master && !all.master_joins)) return;
  check::report_hang(waits_for_master);
}

void block(Slave& slave, const Wait& wait, Lock& lock) {
  World& all = world();
  const auto may_run = [&] {
    return wait.ready() && (!all.check || all.turn == &slave);
  };
  if (may_run()) {
    slave.wait = nullptr;
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

void master_waits(const char* what, const void* pc,
                  const std::function<bool()>& ready, Lock& lock) {
  World& all = world();
  all.master_in = what;
  all.master_pc = pc;
  all.master_ready = &ready;
  release_slaves();
  changed();
  require_progress();
  all.master_wake.wait(lock, ready);
  all.master_in = nullptr;
  all.master_ready = nullptr;
}

void take_turn(Slave& slave) {
  if (!slave.loose) return;
  Lock lock(world().mutex);
  block(slave, slave.first_turn, lock);
}

}  // namespace swamp::sunway
