// Which access happens before which: vector clocks over slaves, advanced by
// barriers, locks and messages.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_CLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace swamp::sunway::check {

// Clock has the time of every slave of the machine and, if an RMA was sent, the
// time of the last send of every slave of which it is known that it has
// arrived.
using Clock = std::vector<std::uint32_t>;

// SlaveClock is the vector clock of one slave.
class SlaveClock {
 public:
  explicit SlaveClock(std::size_t slave, std::size_t slaves);

  // release() merges this clock into the clock of `object`, and acquire() the
  // clock of `object` into this one. `number` is the generation of a barrier or
  // the number of a message: a fast slave may be at the next one before a slow
  // one has left this one.
  void release(const volatile void* object, std::uint64_t number = 0);
  // send() is a release to those who wait for data that this slave sends: they
  // know then that it has arrived.
  void send(const volatile void* object, std::uint64_t number = 0);
  // arrived() is called when this slave knows that all it has sent has arrived.
  void arrived();
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
  // arrived_of() returns the time of the last send of a slave of which this one
  // knows that it has arrived.
  std::uint32_t arrived_of(std::size_t slave) const noexcept {
    return clock_->size() == slaves_ ? 0 : (*clock_)[slaves_ + slave];
  }
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
  std::size_t slaves_;
  std::uint64_t epoch_ = 0;
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
