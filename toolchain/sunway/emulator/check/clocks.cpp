// The clocks of locks, barriers and messages, by address and generation, and of
// memory that was freed: a slave that gets the memory again acquires the clock
// of the slave that freed it.
#include "toolchain/sunway/emulator/check/clocks.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "toolchain/sunway/emulator/host_process.h"

namespace swamp::sunway::check {
namespace {

std::mutex mutex;
using Key = std::pair<const volatile void*, std::uint64_t>;
std::map<Key, Clock>& objects() {
  static auto* const all = new std::map<Key, Clock>;
  return *all;
}
std::uint64_t epoch = 1;  // of forget_objects()
// Most programs neither synchronise slaves nor send messages, but wait for many
// transfers.
std::atomic<bool> any_objects{false};

const Key kMasters{&epoch, 0};

// Freed is memory that a slave of this launch freed, with its clock at that
// time.
struct Freed {
  std::uintptr_t end;
  std::shared_ptr<const Clock> clock;
};
std::map<std::uintptr_t, Freed>& freed() {  // by begin, disjoint
  static auto* const all = new std::map<std::uintptr_t, Freed>;
  return *all;
}

// carve() removes a range from the freed memory and visits its clocks.
template <class Visit>
void carve(std::uintptr_t begin, std::uintptr_t end, Visit visit) {
  auto next = freed().upper_bound(begin);
  if (next != freed().begin()) --next;
  while (next != freed().end() && next->first < end) {
    if (next->second.end <= begin) {
      ++next;
      continue;
    }
    const std::uintptr_t from = next->first;
    const Freed old = next->second;
    visit(*old.clock);
    next = freed().erase(next);
    if (from < begin) freed()[from] = {begin, old.clock};
    if (old.end > end) freed()[end] = old;
  }
}

void join(Clock& to, const Clock& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    to[i] = std::max(to[i], from[i]);
  }
}

}  // namespace

SlaveClock::SlaveClock(std::size_t slave, std::size_t slaves)
    : slave_(slave), slaves_(slaves), clock_(std::make_shared<Clock>(slaves)) {
  restart();
}

Clock& SlaveClock::writable() {
  if (clock_.use_count() != 1) clock_ = std::make_shared<Clock>(*clock_);
  return *clock_;
}

void SlaveClock::restart() {
  const std::lock_guard<std::mutex> lock(mutex);
  Clock& clock = writable();
  // Accesses of earlier launches may not have been compared yet.
  const std::uint32_t own = epoch_ == epoch ? clock[slave_] : 0;
  epoch_ = epoch;
  std::fill(clock.begin(), clock.end(), 0);
  clock[slave_] = own;
  const auto masters = objects().find(kMasters);
  if (masters != objects().end()) join(clock, masters->second);
  ++clock[slave_];
}

void SlaveClock::joined() {
  if (epoch_ == epoch) release(kMasters.first, kMasters.second);
}

void SlaveClock::release(const volatile void* object, std::uint64_t number) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  join(objects()[{object, number}], *clock_);
  any_objects = true;
  ++writable()[slave_];
}

void SlaveClock::send(const volatile void* object, std::uint64_t number) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  Clock& to = objects()[{object, number}];
  join(to, *clock_);
  to.resize(2 * slaves_);
  to[slaves_ + slave_] = now();
  any_objects = true;
  ++writable()[slave_];
}

void SlaveClock::arrived() {
  const OwnAllocations own;
  Clock& clock = writable();
  clock.resize(2 * slaves_);
  clock[slaves_ + slave_] = clock[slave_]++;
}

void SlaveClock::acquire(const volatile void* object, std::uint64_t number) {
  if (!any_objects) return;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = objects().find({object, number});
  if (found == objects().end()) return;
  join(writable(), found->second);
}

void SlaveClock::acquire_messages(const volatile void* object,
                                  std::uint64_t last) {
  if (!any_objects) return;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto end = objects().upper_bound({object, last});
  for (auto next = objects().lower_bound({object, 0}); next != end;) {
    join(writable(), next->second);
    next = objects().erase(next);
  }
}

void masters_release(const volatile void* object, std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto masters = objects().find(kMasters);
  if (masters != objects().end()) {
    join(objects()[{object, number}], masters->second);
  }
}

void masters_acquire(const volatile void* object, std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = objects().find({object, number});
  if (found != objects().end()) join(objects()[kMasters], found->second);
}

void SlaveClock::retire(std::uintptr_t begin, std::uintptr_t end) {
  constexpr std::size_t kMost = 16 * 1024;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  carve(begin, end, [](const Clock&) {});
  freed()[begin] = {end, clock_};
  if (freed().size() > kMost) {  // one clock for all, which hides findings
    auto all = std::make_shared<Clock>(*clock_);
    for (const auto& [from, memory] : freed()) join(*all, *memory.clock);
    freed().clear();
    freed()[0] = {~std::uintptr_t{0}, all};
  }
  ++writable()[slave_];
}

void SlaveClock::reuse(std::uintptr_t begin, std::uintptr_t end) {
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  carve(begin, end, [&](const Clock& clock) { join(writable(), clock); });
}

void forget_objects() {
  const std::lock_guard<std::mutex> lock(mutex);
  objects().clear();
  any_objects = false;
  ++epoch;
  freed().clear();
}

}  // namespace swamp::sunway::check
