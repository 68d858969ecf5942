// Which access happens before which: vector clocks over slaves, advanced by
// barriers, locks and messages.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace swamp::sunway::check {

using Clock = std::vector<std::uint32_t>;  // of every slave of the machine

// SlaveClock is the vector clock of one slave.
class SlaveClock {
 public:
  explicit SlaveClock(std::size_t slave, std::size_t slaves);

  // release() merges this clock into the clock of `object`, and acquire() the
  // clock of `object` into this one. `number` is the generation of a barrier or
  // the number of a message: a fast slave may be at the next one before a slow
  // one has left this one.
  void release(const volatile void* object, std::uint64_t number = 0);
  void acquire(const volatile void* object, std::uint64_t number = 0);
  // acquire_messages() acquires the messages up to `last`, of which this slave
  // is the only receiver, and deletes their clocks.
  void acquire_messages(const volatile void* object, std::uint64_t last);

  // retire() releases this clock to memory that is freed; reuse() acquires the
  // clocks of memory that is allocated.
  void retire(std::uintptr_t begin, std::uintptr_t end);
  void reuse(std::uintptr_t begin, std::uintptr_t end);

  std::uint32_t now() const noexcept { return (*clock_)[slave_]; }
  // of() returns the latest time of another slave's clock that this slave has
  // acquired.
  std::uint32_t of(std::size_t slave) const noexcept {
    return (*clock_)[slave];
  }
  // acquired() changes when this clock acquires another one.
  std::uint64_t acquired() const noexcept { return acquired_; }
  // snapshot() returns a copy that does not change.
  std::shared_ptr<const Clock> snapshot() const noexcept { return clock_; }
  // is_snapshot() returns whether a copy is what snapshot() would return.
  bool is_snapshot(const std::shared_ptr<const Clock>& copy) const noexcept {
    return copy == clock_;
  }
  // restart() begins a launch: the clock becomes that of the masters.
  void restart();
  // joined() releases this clock to the masters.
  void joined();

 private:
  Clock& writable();

  std::size_t slave_;
  std::uint64_t epoch_ = 0;
  std::uint64_t acquired_ = 0;
  std::shared_ptr<Clock> clock_;
};

// Synchronisation between host threads is not observed, so they share one
// clock. masters_release() and masters_acquire() are a master's part in a lock
// or a barrier.
void masters_release(const volatile void* object, std::uint64_t number);
void masters_acquire(const volatile void* object, std::uint64_t number);

// forget_objects() clears all clocks of objects; no slave may run.
void forget_objects();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_
