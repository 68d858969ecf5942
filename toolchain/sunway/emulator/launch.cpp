// The master's spawn and join. A spawn puts a function and its argument into
// the slaves of some groups, whose threads exist already or are started; a join
// waits for them. Mistakes of the master become error codes or reports.
#include <algorithm>
#include <cerrno>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway {
namespace {

// for_groups() visits the groups of the mask that exist.
template <class Visit>
void for_groups(Machine& all, unsigned mask, Visit visit) {
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    if ((mask >> i & 1u) != 0) visit(all.groups[i]);
  }
}

// refuse() returns the error code of a call that is a mistake of the master.
int refuse(int error, const void* pc, const char* why) {
  if (observer != nullptr) observer->refused(pc, why);
  return error;
}

void require_initialised(const void* pc) {
  if (observer == nullptr || machine().initialised.exchange(true)) return;
  observer->refused(pc,
                    "launches slaves before athread_init, without which the "
                    "machine does not start them");
}

void prepare_barriers(Group& group) {
  // Barriers always include the whole array: those of the hardware do not
  // depend on athread_set_num_threads().
  const auto slaves = static_cast<int>(group.slaves.size());
  group.array = Barrier{slaves, 0, group.array.generation};
  group.master = Barrier{slaves + 1, 0, group.master.generation};
  const int rows = (slaves + kRowLength - 1) / kRowLength;
  group.rows.resize(static_cast<std::size_t>(rows));
  group.columns.resize(static_cast<std::size_t>(kRowLength));
  for (int i = 0; i < rows; ++i) {
    const int left = slaves - i * kRowLength;
    Barrier& row = group.rows[static_cast<std::size_t>(i)];
    row = Barrier{left < kRowLength ? left : kRowLength, 0, row.generation};
  }
  for (int i = 0; i < kRowLength; ++i) {
    Barrier& column = group.columns[static_cast<std::size_t>(i)];
    column = Barrier{(slaves - i + kRowLength - 1) / kRowLength, 0,
                     column.generation};
  }
  group.parts.clear();
  for (auto& slave : group.slaves) {
    slave->peers.assign(slave->peers.size(), 0);
    slave->from_row.clear();
    slave->from_column.clear();
  }
}

// require_one_group() ends a program that would run two core groups with shared
// LDM, which is emulated for one at a time.
void require_one_group(Machine& all, unsigned mask) {
  if (all.shared_bytes == 0) return;
  int running = 0;
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    if ((mask >> i & 1u) != 0 || all.groups[i].state != Group::State::idle) {
      ++running;
    }
  }
  if (running > 1) {
    fail(1,
         "__thread_local_share is emulated for one core group at a time; "
         "SWAMP_CORE_GROUPS=1 makes a machine of one");
  }
}

void start_slave(Machine& all, Slave& slave, SlaveFunction function,
                 void* argument, int thread_number) {
  slave.function = function;
  slave.argument = argument;
  slave.thread_number = thread_number;
  slave.started = !all.check;
  slave.state = SlaveState::running;
  slave.cycle = std::max<std::uint64_t>(slave.cycle, nanoseconds() / 4 * 9);
  slave.clock_reads = 0;
  slave.atomic_operations = 0;
  slave.asynchronous = false;
  slave.gave_way = 0;
  slave.receiver_ns = 0;
  if (all.check) slave.wait = &slave.first_turn;
  if (slave.observer) slave.observer->launched();
  ++all.live;
}

}  // namespace

unsigned all_groups_mask() { return (1u << machine().groups.size()) - 1u; }

unsigned own_group_mask(bool claim) {
  const Lock lock(machine().mutex);
  return 1u << own_group(claim);
}

int launch(unsigned mask, void* function, void* argument, const void* pc) {
  Machine& all = machine();
  if ((mask & ~all_groups_mask()) != 0 || mask == 0) {
    return refuse(ENODEV, pc, "names core groups that do not exist");
  }
  start_groups(mask);
  require_initialised(pc);
  {
    const Lock lock(all.mutex);
    require_one_group(all, mask);
    bool busy = false;
    for_groups(all, mask, [&](Group& group) {
      if (group.state != Group::State::idle) busy = true;
    });
    if (busy) {
      return refuse(
          EBUSY, pc,
          "spawns on a core group that was not joined; the machine returns "
          "EBUSY and runs nothing: join first");
    }
    count_master();
    int number = 0;
    // Slaves that another host thread has launched continue.
    if (all.live == 0) all.launch_pending = all.check;
    for_groups(all, mask, [&](Group& group) {
      group.state = Group::State::running;
      group.singles = false;
      group.launched = all.num_threads;
      ++group.spawns;
      group.remaining = all.num_threads;
      group.spawned_at = pc;
      prepare_barriers(group);
      for (int i = 0; i < group.launched; ++i) {
        Slave& slave = *group.slaves[static_cast<std::size_t>(i)];
        start_slave(all, slave, reinterpret_cast<SlaveFunction>(function),
                    argument, number + i);
      }
      number += static_cast<int>(group.slaves.size());
    });
    if (observer != nullptr) observer->launched(mask, argument, pc);
  }
  if (all.check) return 0;  // they start when they get the turn
  for_groups(all, mask, [&](Group& group) {
    for (int i = 0; i < group.launched; ++i) {
      sem_post(&group.slaves[static_cast<std::size_t>(i)]->start);
    }
  });
  return 0;
}

int join(unsigned mask, const void* pc) {
  Machine& all = machine();
  mask &= all_groups_mask();
  Lock lock(all.mutex);
  bool idle = false;
  for_groups(all, mask, [&](Group& group) {
    if (group.state == Group::State::idle) idle = true;
  });
  if (idle) {
    return refuse(ESRCH, pc, "joins a core group on which nothing was spawned");
  }
  if (observer != nullptr) {
    observer->joining(mask, pc, __builtin_frame_address(0));
  }
  const auto ended = [&] {
    bool all_ended = true;
    for_groups(all, mask, [&](Group& group) {
      if (group.state == Group::State::running) all_ended = false;
    });
    return all_ended;
  };
  master_waits({Wait::Kind::master, pc, "athread_join", ended}, lock);
  for_groups(all, mask, [](Group& group) { group.state = Group::State::idle; });
  if (observer != nullptr) observer->joined(mask);
  return 0;
}

int launch_one(int id, void* function, void* argument, const void* pc) {
  Machine& all = machine();
  if (id < 0 || id >= all.slaves_per_group()) {
    return refuse(EINVAL, pc, "names a slave that does not exist");
  }
  start_groups(own_group_mask(true));
  require_initialised(pc);
  int own = 0;
  {
    const Lock lock(all.mutex);
    own = own_group(true);
    Group& group = all.groups[static_cast<std::size_t>(own)];
    const Slave& slave = *group.slaves[static_cast<std::size_t>(id)];
    if (slave.live() || (group.state != Group::State::idle && !group.singles)) {
      return refuse(EBUSY, pc, "starts a slave that was not waited for");
    }
    count_master();
    if (all.live == 0) all.launch_pending = all.check;
    if (group.remaining == 0) prepare_barriers(group);
    group.singles = true;
    group.state = Group::State::running;
    ++group.remaining;
    ++group.spawns;
    group.spawned_at = pc;
    start_slave(all, all.slave(own, id),
                reinterpret_cast<SlaveFunction>(function), argument, id);
    if (observer != nullptr) observer->launched(1u << own, argument, pc);
  }
  if (!all.check) sem_post(&all.slave(own, id).start);
  return 0;
}

int join_one(int id, const void* pc) {
  Machine& all = machine();
  if (id < 0 || id >= all.slaves_per_group()) {
    return refuse(EINVAL, pc, "names a slave that does not exist");
  }
  Lock lock(all.mutex);
  const int own = own_group(false);
  Group& group = all.groups[static_cast<std::size_t>(own)];
  if (group.slaves.empty()) return 0;
  const Slave& slave = all.slave(own, id);
  if (observer != nullptr) {
    observer->joining(0, pc, __builtin_frame_address(0));
  }
  master_waits(
      {Wait::Kind::master, pc, "athread_wait", [&] { return !slave.live(); }},
      lock);
  if (group.remaining == 0) {
    group.state = Group::State::idle;
    if (observer != nullptr) observer->joined(1u << own);
  }
  return 0;
}

}  // namespace swamp::sunway
