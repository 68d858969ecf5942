#include "runtime/sunway/arrival.h"

#include <sched.h>

#include <vector>

#include "runtime/sunway/clock.h"
#include "runtime/sunway/schedule.h"

namespace swamp::sunway {
namespace {

// A receiver that computes is not waited for longer than this, nor all of a
// launch's together than the second.
constexpr unsigned long kOnce = 1000000;  // nanoseconds
constexpr unsigned long kTogether = 300000000;

// goes_on() says whether a slave may still do something before it waits.
bool goes_on(const Slave& slave) {
  if (!slave.live || slave.sending) return false;
  return slave.wait == nullptr || slave.wait->ready();
}

bool any_goes_on(const std::vector<Slave*>& receivers) {
  const Lock lock(world().mutex);
  for (const Slave* receiver : receivers) {
    if (goes_on(*receiver)) return true;
  }
  return false;
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
    unsigned long now = begin;
    while (now - begin < kOnce && any_goes_on(receivers)) {
      sched_yield();
      now = nanoseconds();
    }
    slave.patience += now - begin;
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
