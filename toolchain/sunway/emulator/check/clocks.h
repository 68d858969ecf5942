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

  // release() adds what the slave knows to what `object` tells; acquire()
  // learns it. `number` tells the generations of a barrier or the messages
  // apart: a fast slave may be at the next one before a slow one has left this
  // one.
  void release(const volatile void* object, std::uint64_t number = 0);
  void acquire(const volatile void* object, std::uint64_t number = 0);
  // acquire_messages() learns the messages up to `last`, of which this slave is
  // the only receiver, and forgets them.
  void acquire_messages(const volatile void* object, std::uint64_t last);

  // retire() gives with memory that is freed; reuse() takes what was given with
  // memory that is allocated.
  void retire(std::uintptr_t begin, std::uintptr_t end);
  void reuse(std::uintptr_t begin, std::uintptr_t end);

  std::uint32_t now() const noexcept { return (*clock_)[slave_]; }
  // knows() is the last of another's clock that this slave has heard of.
  std::uint32_t knows(std::size_t slave) const noexcept {
    return (*clock_)[slave];
  }
  // snapshot() stays as it is while the clock goes on.
  std::shared_ptr<const Clock> snapshot() noexcept { return clock_; }
  // restart() begins a launch: it knows what the masters know.
  void restart();
  // joined() tells the masters all that this slave did.
  void joined();

 private:
  Clock& writable();

  std::size_t slave_;
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
