// Copies the blocks of a DMA, adds to reply words, and delays sends: a slave
// that is to receive runs first for a while, because on the machine data takes
// time to arrive.
#include "toolchain/sunway/emulator/transfer.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway {

std::size_t Transfer::extent() const noexcept {
  if (length <= 0) return 0;
  if (stride == 0 || block <= 0) return static_cast<std::size_t>(length);
  const long blocks = (length + block - 1) / block;
  return static_cast<std::size_t>(length + (blocks - 1) * stride);
}

void carry_out(const Transfer& transfer) noexcept {
  if (transfer.writes_main()) {
    for_blocks(transfer, [](std::byte* main, std::byte* ldm, std::size_t n) {
      std::memcpy(main, ldm, n);
    });
  } else {
    for_blocks(transfer, [](std::byte* main, std::byte* ldm, std::size_t n) {
      std::memcpy(ldm, main, n);
    });
  }
}

void count(Slave& slave, const Transfer& transfer) noexcept {
  Counters& all = slave.counters;
  if (transfer.length <= 0) return;
  predict::Lines lines;
  for_blocks(transfer, [&](std::byte* main, std::byte*, std::size_t bytes) {
    lines.add(predict::lines_of(main, bytes));
  });
  const auto bytes = static_cast<std::uint64_t>(transfer.length);
  switch (transfer.kind) {
    case Transfer::Kind::get:
      all.get(bytes, lines);
      break;
    case Transfer::Kind::put:
      all.put(bytes, lines);
      break;
    case Transfer::Kind::remote_get:
      ++all.rma_requests;
      all.rma_bytes += bytes;
      break;
  }
}

void remember_get(Slave& slave, const Transfer& t) noexcept {
  if (t.reply == nullptr || (t.writes_main() && t.reply != slave.last_get)) {
    return;
  }
  const int before =
      t.reply == slave.last_get ? slave.last_get_value : read_reply(t.reply);
  slave.last_get = t.reply;
  slave.last_get_value = before + 1;
}

std::byte* as_seen_by(const Slave& other,
                      const volatile void* address) noexcept {
  const Group& group = machine().groups[static_cast<std::size_t>(other.group)];
  const std::size_t offset =
      address_of(address) - address_of(group.memory.load());
  return offset < group.slaves.size() * kSlotDistance
             ? other.slot + offset % kSlotDistance
             : static_cast<std::byte*>(const_cast<void*>(address));
}

unsigned long cpu_time(const Slave& slave) {
  clockid_t clock = 0;
  if (pthread_getcpuclockid(slave.thread, &clock) != 0) return 0;
  return nanoseconds(clock);
}

namespace {

// Nanoseconds. A sender waits until each receiver that computes has had
// kEnoughCpuTime of CPU time, but not longer than kLongestWait, and all sends
// of a launch together use at most kMostPerLaunch of CPU time. CPU time is used
// because on a busy computer a thread may not run for a long time.
constexpr unsigned long kEnoughCpuTime = 1000000;
constexpr unsigned long kLongestWait = 1000000000;
constexpr unsigned long kMostPerLaunch = 300000000;

// can_run() returns whether a slave may still do something before it waits.
bool can_run(const Slave& slave) {
  if (!slave.live() || slave.state == SlaveState::sending || slave.naps) {
    return false;
  }
  return slave.wait == nullptr || slave.wait->ready();
}

bool can_run_now(const Slave& slave) {
  const Lock lock(machine().mutex);
  return can_run(slave);
}

bool any_can_run(const std::vector<Slave*>& receivers) {
  return std::any_of(receivers.begin(), receivers.end(),
                     [](const Slave* slave) { return can_run_now(*slave); });
}

// change_state() changes nothing if the slave has lost the turn.
void change_state(Slave& slave, SlaveState from, SlaveState to) {
  const Lock lock(machine().mutex);
  if (slave.state == from) slave.state = to;
}

void yield_to(Slave& slave, const std::vector<Slave*>& receivers) {
  Machine& all = machine();
  change_state(slave, SlaveState::running, SlaveState::sending);
  if (all.check) {
    // Each call lets another slave, not always a receiver, run until it waits.
    int times = 2 * all.slaves_per_group();
    while (times-- > 0 && any_can_run(receivers) && yield_turn(slave)) {
    }
  } else {
    const unsigned long begin = nanoseconds();
    std::vector<unsigned long> cpu_begin;
    for (const Slave* receiver : receivers) {
      cpu_begin.push_back(cpu_time(*receiver));
    }
    unsigned long used = 0;  // least CPU time of a receiver that can run
    while (used < kEnoughCpuTime && nanoseconds() - begin < kLongestWait &&
           any_can_run(receivers)) {
      sched_yield();
      used = kEnoughCpuTime;
      for (std::size_t i = 0; i < receivers.size(); ++i) {
        if (!can_run_now(*receivers[i])) continue;
        used = std::min(used, cpu_time(*receivers[i]) - cpu_begin[i]);
      }
    }
    slave.receiver_ns += used;
  }
  change_state(slave, SlaveState::sending, SlaveState::running);
}

void wait_for(Slave& slave, const std::vector<Slave*>& receivers) {
  const Order& order = machine().order;
  const bool immediate = machine().check && (order.seed != 0 || order.eager);
  if (immediate || slave.receiver_ns > kMostPerLaunch || receivers.empty())
    return;
  if (any_can_run(receivers)) yield_to(slave, receivers);
}

}  // namespace

void let_receivers_run(Slave& slave, Slave& receiver) {
  if (&receiver != &slave) wait_for(slave, {&receiver});
}

void let_receivers_run(Slave& slave, Range range, unsigned mask) {
  std::vector<Slave*> receivers;
  for_range(slave, range, mask, [&](Slave& other) {
    if (&other != &slave) receivers.push_back(&other);
  });
  wait_for(slave, receivers);
}

void wait_reply(const char* call, volatile void* reply, int value,
                const void* pc) {
  Slave& slave = require_self(call);
  if (slave.observer) slave.observer->wait_begins(reply, value, call, pc);
  if (reply != nullptr && reply == slave.last_get &&
      value >= slave.last_get_value) {
    slave.last_get = nullptr;
    ++slave.counters.get_waits;
  }
  if (read_reply(reply) < value) {
    Machine& all = machine();
    Lock lock(all.mutex);
    Wait wait{Wait::Kind::reply, pc, call,
              [&] { return read_reply(reply) >= value; }};
    wait.reply = reply;
    wait.value = value;
    block(slave, wait, lock);
  }
  if (slave.observer) slave.observer->wait_ends(reply, value);
}

void notify_receivers() {
  const Lock lock(machine().mutex);
  changed();
}

}  // namespace swamp::sunway
