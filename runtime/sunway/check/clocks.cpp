#include "runtime/sunway/check/clocks.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace swamp::sunway::check {
namespace {

std::mutex mutex;
std::map<const volatile void*, Clock>& objects() {
  static auto* const all = new std::map<const volatile void*, Clock>;
  return *all;
}

void join(Clock& to, const Clock& from) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    to[i] = std::max(to[i], from[i]);
  }
}

}  // namespace

SlaveClock::SlaveClock(std::size_t slave, std::size_t slaves)
    : slave_(slave), clock_(std::make_shared<Clock>(slaves)) {
  restart();
}

Clock& SlaveClock::writable() {
  if (clock_.use_count() != 1) clock_ = std::make_shared<Clock>(*clock_);
  return *clock_;
}

void SlaveClock::restart() {
  Clock& clock = writable();
  std::fill(clock.begin(), clock.end(), 0);
  clock[slave_] = 1;
}

void SlaveClock::give(const volatile void* object) {
  const std::lock_guard<std::mutex> lock(mutex);
  Clock& told = objects()[object];
  if (told.empty()) told.resize(clock_->size());
  join(told, *clock_);
  ++writable()[slave_];
}

void SlaveClock::take(const volatile void* object) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = objects().find(object);
  if (found != objects().end()) join(writable(), found->second);
}

void forget_objects() {
  const std::lock_guard<std::mutex> lock(mutex);
  objects().clear();
}

}  // namespace swamp::sunway::check
