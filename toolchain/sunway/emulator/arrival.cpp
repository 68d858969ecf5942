#include "toolchain/sunway/emulator/arrival.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "toolchain/sunway/emulator/clock.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway {
namespace {

// How long a sender waits for receivers that compute, in nanoseconds: until
// each has had kOnce of CPU time, or after kAtMost; in one launch kTogether of
// CPU time. CPU time, because on a busy computer a thread may not run for long.
constexpr unsigned long kOnce = 1000000;
constexpr unsigned long kAtMost = 1000000000;
constexpr unsigned long kTogether = 300000000;

// cpu_time() returns the CPU time of a slave's thread in nanoseconds.
unsigned long cpu_time(const Slave& slave) {
  clockid_t clock = 0;
  timespec time = {};
  if (pthread_getcpuclockid(slave.thread, &clock) == 0) {
    clock_gettime(clock, &time);
  }
  return static_cast<unsigned long>(time.tv_sec) * 1000000000 +
         static_cast<unsigned long>(time.tv_nsec);
}

// goes_on() returns whether a slave may still do something before it waits.
bool goes_on(const Slave& slave) {
  if (!slave.live || slave.sending) return false;
  return slave.wait == nullptr || slave.wait->ready();
}

bool goes_on_now(const Slave& slave) {
  const Lock lock(world().mutex);
  return goes_on(slave);
}

bool any_goes_on(const std::vector<Slave*>& receivers) {
  return std::any_of(receivers.begin(), receivers.end(),
                     [](const Slave* slave) { return goes_on_now(*slave); });
}

void set_sending(Slave& slave, bool value) {
  const Lock lock(world().mutex);
  slave.sending = value;
}

void give_way(Slave& slave, const std::vector<Slave*>& receivers) {
  World& all = world();
  set_sending(slave, true);
  if (all.check) {
    // Each time another slave, not always a receiver, runs until it waits.
    int times = 2 * all.slaves_per_group();
    while (times-- > 0 && any_goes_on(receivers) && yield_turn(slave)) {
    }
  } else {
    const unsigned long begin = nanoseconds();
    std::vector<unsigned long> cpu_begin;
    for (const Slave* receiver : receivers) {
      cpu_begin.push_back(cpu_time(*receiver));
    }
    unsigned long used = 0;  // by the receiver that has had least
    while (used < kOnce && nanoseconds() - begin < kAtMost &&
           any_goes_on(receivers)) {
      sched_yield();
      used = kOnce;
      for (std::size_t i = 0; i < receivers.size(); ++i) {
        if (!goes_on_now(*receivers[i])) continue;
        used = std::min(used, cpu_time(*receivers[i]) - cpu_begin[i]);
      }
    }
    slave.patience += used;
  }
  set_sending(slave, false);
}

void wait_for(Slave& slave, const std::vector<Slave*>& receivers) {
  const Order& order = world().order;
  const bool at_once =
      slave.check != nullptr && (order.seed != 0 || order.eager);
  if (at_once || slave.patience > kTogether || receivers.empty()) return;
  if (any_goes_on(receivers)) give_way(slave, receivers);
}

}  // namespace

void before_arrival(Slave& slave, Slave& receiver) {
  if (&receiver != &slave) wait_for(slave, {&receiver});
}

void before_arrival(Slave& slave, Range range, unsigned mask) {
  std::vector<Slave*> receivers;
  for_range(slave, range, mask, [&](Slave& other) {
    if (&other != &slave) receivers.push_back(&other);
  });
  wait_for(slave, receivers);
}

}  // namespace swamp::sunway
